"""The README's Python examples run as they stand, the long one in a short form."""

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHORT = '"iterations=2", "warm_start.steps=10", "warm_start.num_episodes=60", "max_spoil_steps=10", "num_tasks=8"'


def test_there_are_the_three_examples_and_both_commands_by_line_thirty() -> None:
    assert len(BLOCKS) == 3
    top = "\n".join(README.splitlines()[:30])
    assert ".venv/bin/mas-envs train math-tiny" in top
    assert ".venv/bin/pytest" in top
    assert 100 <= len(README.splitlines()) <= 150


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_example_runs(index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    code = BLOCKS[index].replace('"iterations=50"', SHORT)
    exec(compile(code, f"README block {index}", "exec"), {})
    printed = capsys.readouterr().out
    assert ["('solver_0', True)" in printed, "->" in printed, printed == ""][index]
