"""Runs the Python blocks of a page about another library."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "blocks", "needs", "promised", "run"]

DOCS = Path(__file__).parents[2] / "docs" / "adapters"
FOREIGN = ("trl", "verl", "verifiers", "openenv", "openai", "langgraph")


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def needs(block: str) -> list[str]:
    return [library for library in FOREIGN if re.search(rf"^(from|import) {library}\b", block, re.MULTILINE)]


def promised(block: str) -> list[str]:
    """The comment lines that stand directly below a line that prints, or below another such comment."""
    lines, found = block.splitlines(), []
    for number, line in enumerate(lines):
        above = lines[number - 1] if number else ""
        if line.startswith("# ") and (above.lstrip().startswith("print(") or above.startswith("# ")):
            found.append(line[2:].rstrip())
    return found


def run(page: str) -> tuple[list[str], list[str]]:
    """What the blocks printed and what they promised to print, those for libraries that are not there left out.

    A block that starts with the name of a file is that file, in the present folder.
    """
    names: dict[str, Any] = {"__name__": "documentation"}
    printed, expected = io.StringIO(), []
    for number, block in enumerate(blocks(page), start=1):
        if not all(importlib.util.find_spec(library) for library in needs(block)):
            continue
        if named := re.match(r"# (\w+\.py)\n", block):
            Path(named[1]).write_text(block, encoding="utf-8")
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"{page}, block {number}", "exec"), names)
        expected += promised(block)
    return [line.rstrip() for line in printed.getvalue().splitlines()], expected
