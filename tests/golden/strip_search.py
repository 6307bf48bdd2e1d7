"""Writes search_answers.jsonl and search_episodes.jsonl from the reference vectors: python strip_search.py DIRECTORY.

The first line of each file says where its cases come from. Of an episode's steps only what the retriever was asked and
gave, and what was said, is kept: rewards and endings of the published code are not ours.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = "rules of the reference vectors, checked against the published code of Dr. MAS (arXiv 2602.08847)"


def strip_answer(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in ("id", "prediction", "golds", "em", "f1")}


def strip_episode(case: dict[str, Any]) -> dict[str, Any]:
    if case["kind"] == "history":
        return {name: case[name] for name in ("id", "kind", "history", "golds", "right")}
    kept = {name: case[name] for name in ("id", "kind", "note", "golds", "max_turns", "should_be_rewarded")}
    return {**kept, "steps": [{"action": step["action"], "observation": step["observation"]} for step in case["steps"]]}


def write(name: str, cases: list[dict[str, Any]]) -> None:
    header = {"source": SOURCE, "tolerance": "exact, f1 to 1e-6", "made_by": "tests/golden/strip_search.py"}
    lines = [json.dumps(item, separators=(",", ":")) for item in [header, *cases]]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(directory: Path) -> None:
    for name, strip in (("search_answers.jsonl", strip_answer), ("search_episodes.jsonl", strip_episode)):
        rows = (directory / name).read_text(encoding="utf-8").splitlines()
        write(name, [strip(json.loads(row)) for row in rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
