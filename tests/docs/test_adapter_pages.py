"""The pages about other libraries: every Python block runs in order and prints what the comment below it says."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import mas_envs
from tests.docs.adapter_pages import DOCS, blocks, needs, run
from trainers.config import TinyModelSettings
from trainers.tiny_model import make_tiny_model

PAGES = ("gymnasium.md", "conversation-frameworks.md", "advantages-alone.md", "trl.md", "verifiers.md", "openenv.md")


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


def test_blocks_that_need_a_library_that_is_not_ours_are_known() -> None:
    foreign = {page: [needs(block) for block in blocks(page) if needs(block)] for page in PAGES}
    assert foreign == {
        "gymnasium.md": [],
        "conversation-frameworks.md": [],
        "advantages-alone.md": [["trl"]],
        "trl.md": [["trl"]],
        "verifiers.md": [["verifiers"]],
        "openenv.md": [],
    }
