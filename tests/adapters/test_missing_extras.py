"""Adapters whose foreign library is a base class: without it, their import is one sentence."""

import importlib
import sys

import pytest

from mas_envs.errors import MissingExtraError


@pytest.mark.parametrize("library", ["openenv", "verifiers"])
def test_missing_library_is_one_sentence_that_names_the_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"adapters.{library}", raising=False)
    with pytest.raises(
        MissingExtraError, match=rf"^adapters\.{library} needs {library}; pip install 'mas-envs\[{library}\]'$"
    ):
        importlib.import_module(f"adapters.{library}")
