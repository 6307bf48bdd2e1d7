"""The pages about other libraries: every Python block runs in order and prints what the comment below it says."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import mas_envs
from trainers.config import TinyModelSettings
from trainers.tiny_model import make_tiny_model

DOCS = Path(__file__).parents[2] / "docs" / "adapters"
PAGES = ("gymnasium.md", "conversation-frameworks.md", "advantages-alone.md", "trl.md")
FOREIGN = ("trl", "verl", "openai", "langgraph")


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
    """What the blocks printed and what they promised to print, those for libraries that are not there left out."""
    names: dict[str, Any] = {"__name__": "documentation"}
    printed, expected = io.StringIO(), []
    for number, block in enumerate(blocks(page), start=1):
        if not all(importlib.util.find_spec(library) for library in needs(block)):
            continue
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"{page}, block {number}", "exec"), names)
        expected += promised(block)
    return [line.rstrip() for line in printed.getvalue().splitlines()], expected


@pytest.fixture(autouse=True)
def unchanged_registries(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(mas_envs.registry, "_specs", dict(mas_envs.registry._specs))
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def test_page_of_gymnasium_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    size = TinyModelSettings(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2)
    make_tiny_model(["Solve 17+25.", "<verify>approve</verify>"], tmp_path / "my_model", size, seed=0)
    printed, expected = run("gymnasium.md")
    assert printed == expected
    assert len(expected) == 7


def test_page_of_conversation_frameworks_prints_what_it_says() -> None:
    printed, expected = run("conversation-frameworks.md")
    assert printed == expected
    assert len(expected) == 9


def test_page_of_the_advantages_prints_what_it_says() -> None:
    printed, expected = run("advantages-alone.md")
    assert printed == expected
    assert len(expected) == 3


def test_page_of_trl_prints_what_it_says() -> None:
    printed, expected = run("trl.md")
    assert printed == expected
    assert len(expected) == 1


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / page).read_text(encoding="utf-8")):
        assert (DOCS / target).is_file(), f"{page} links to {target}"


def test_only_the_trainer_of_trl_needs_a_library_that_is_not_ours() -> None:
    foreign = {page: [needs(block) for block in blocks(page) if needs(block)] for page in PAGES}
    assert foreign == {
        "gymnasium.md": [],
        "conversation-frameworks.md": [],
        "advantages-alone.md": [["trl"]],
        "trl.md": [["trl"]],
    }
