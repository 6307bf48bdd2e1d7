"""The pages about libraries with an environment of their own: every Python block runs and prints what it says."""

import sys
from pathlib import Path

import pytest

from tests.docs.adapter_pages import run


@pytest.mark.parametrize(("library", "num_lines"), [("verifiers", 2), ("openenv", 5)])
def test_page_prints_what_it_says(
    library: str, num_lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library, reason=f"pip install 'mas-envs[{library}]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed, expected = run(f"{library}.md")
    monkeypatch.delitem(sys.modules, "math_team", raising=False)
    assert printed == expected
    assert len(expected) == num_lines
