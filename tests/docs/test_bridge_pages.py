"""The pages about libraries with an environment of their own: every Python block runs and prints what it says."""

import sys
from pathlib import Path

import pytest

from tests.docs.adapter_pages import run


def test_page_of_verifiers_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verifiers", reason="pip install 'mas-envs[verifiers]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed, expected = run("verifiers.md")
    monkeypatch.delitem(sys.modules, "math_team")
    assert printed == expected
    assert len(expected) == 2
