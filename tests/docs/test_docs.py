"""Every Python block of the documentation runs, the blocks of a page in order."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import mas_envs
from trainers.config import parse_settings
from trainers.estimators import ESTIMATORS
from trainers.losses import LOSSES
from trainers.reward_terms import REWARD_TERMS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def unchanged_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_envs.registry, "_specs", dict(mas_envs.registry._specs))
    for table in (ESTIMATORS, LOSSES, REWARD_TERMS):
        monkeypatch.setattr(table, "_values", dict(table._values))


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_in_order(page: str) -> None:
    names: dict[str, Any] = {"__name__": "documentation"}
    for number, block in enumerate(blocks(page), start=1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    assert names.keys() > {"__name__"} or not blocks(page)


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_recipes_of_the_team_page_are_whole_recipes() -> None:
    recipes = yaml_blocks("teams.md")
    assert len(recipes) == 6
    for recipe in recipes:
        settings = parse_settings(yaml.safe_load(recipe))
        assert set(settings.agents.values()) == set(settings.policies)


@pytest.mark.parametrize(("page", "section"), [("engines.md", "policies"), ("retrieval.md", "env")])
def test_parts_of_recipes_are_settings_that_exist(page: str, section: str) -> None:
    (part,) = map(yaml.safe_load, yaml_blocks(page))
    whole = {"env": {"id": "MathLoop-v0"}, "policies": {"solver": {}, "verifier": {}}, **part}
    settings = parse_settings({**whole, "agents": {name: name for name in whole["policies"]}})
    assert getattr(settings, section)


def test_environment_of_the_tutorial_is_under_sixty_lines() -> None:
    rules = blocks("write-an-environment.md")[0]
    assert rules[rules.index("class ") :].count("\n") < 60


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / page).read_text(encoding="utf-8")):
            assert (DOCS / target).is_file(), f"{page} links to {target}"
