"""Writes actions.jsonl and turn_order.jsonl from the reference vectors: python strip_conversations.py DIRECTORY.

The first line of each file says where its cases come from. `published` is what the published code makes of a text.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = "rules of the reference vectors, checked against the published code of Dr. MAS (arXiv 2602.08847)"


def strip_action(case: dict[str, Any]) -> dict[str, Any]:
    """The completion and what should be read from it; `published` is the decision of the published code."""
    recommended = case["recommended"]
    return {
        "id": case["id"],
        "role": case["role"],
        "completion": case["completion"],
        "valid": recommended["valid"],
        "content": recommended.get("content", recommended.get("decision")),
        "published": case["reference"].get("decision"),
    }


def strip_flow(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name not in ("note", "agree")}


def write(name: str, cases: list[dict[str, Any]]) -> None:
    header = {"source": SOURCE, "tolerance": "exact", "made_by": "tests/golden/strip_conversations.py"}
    lines = [json.dumps(item, separators=(",", ":")) for item in [header, *cases]]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(directory: Path) -> None:
    for name, strip in (("actions.jsonl", strip_action), ("turn_order.jsonl", strip_flow)):
        rows = (directory / name).read_text(encoding="utf-8").splitlines()
        write(name, [strip(json.loads(row)) for row in rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
