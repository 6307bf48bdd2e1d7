"""Writes advantages.jsonl and policy_loss.jsonl from the reference vectors: python strip_reference.py DIRECTORY.

The first line of each file says where the numbers come from and how close an implementation has to be.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KINDS = ("float64", "float64_population_std", "float64_without_copies")


def strip_advantages(case: dict[str, Any]) -> dict[str, Any]:
    rows = case["rows"]
    columns = {name: [row[name] for row in rows] for name in ("group", "trajectory", "agent", "reward")}
    return {
        "id": case["id"],
        "tags": case["tags"],
        "epsilon": case["epsilon"],
        **columns,
        "copies": [index for index, row in enumerate(rows) if row.get("duplicate_of") is not None],
        "expected": {
            scheme: {kind: values[kind] for kind in KINDS if kind in values}
            for scheme, values in case["expected"].items()
        },
    }


def write(name: str, header: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    lines = [json.dumps(item, separators=(",", ":")) for item in [header, *cases]]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(directory: Path) -> None:
    made_by = "tests/golden/strip_reference.py"
    cases = {
        name: [json.loads(line) for line in (directory / name).read_text(encoding="utf-8").splitlines()]
        for name in ("advantages.jsonl", "policy_loss.jsonl")
    }
    source = "independent float64 definitions, checked against the published code of Dr. MAS (arXiv 2602.08847)"
    header = {"source": source, "tolerance": "1e-6 absolute, relative above 1", "made_by": made_by}
    write("advantages.jsonl", header, [strip_advantages(case) for case in cases["advantages.jsonl"]])
    source = "float32 output of the policy loss in the published code of Dr. MAS (arXiv 2602.08847), a copy of verl's"
    header = {"source": source, "tolerance": "1e-5 relative", "made_by": made_by}
    write("policy_loss.jsonl", header, cases["policy_loss.jsonl"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
