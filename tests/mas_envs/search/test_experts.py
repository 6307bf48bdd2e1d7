"""Scripted experts: as good as their skill says."""

import random

import pytest

from mas_envs import Skill, Task
from mas_envs.actions import parse_block, parse_verdict
from mas_envs.search.evidence import Round
from mas_envs.search.experts import Knowledge, scripted_answer, scripted_query, scripted_route
from mas_envs.search.prompts import STYLES, PromptStyle
from tests.mas_envs.search.table import passage

TASK = Task(
    "t", "q", ("Gold", "Other"), "", {"supporting_titles": ("A", "B"), "queries": ("qa", "qb"), "values": ("B", "Gold")}
)
DECOY = Task("d", "other q", "Decoy", "", {"queries": ("wrong",)})
NOTHING = Knowledge(TASK, (), DECOY)
HALF = Knowledge(TASK, (Round("qa", (passage("A"), passage("C"))),), DECOY)
ALL = Knowledge(TASK, (Round("qb", (passage("B"),)), Round(None, fault="lost"), Round("qa", (passage("A"),))), DECOY)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("known", "route", "query", "answer"),
    [(NOTHING, "no", "qa", "unknown"), (HALF, "no", "qb", "B"), (ALL, "yes", "qb", "Gold")],
)
def test_experts_do_what_is_right_at_that_moment(
    known: Knowledge, route: str, query: str, answer: str, style: PromptStyle
) -> None:
    rng = random.Random(0)
    assert parse_verdict(scripted_route(known, rng, Skill(), style), "verify", ("yes", "no")).content == route
    thoughts = "required" if style == "full" else "optional"
    for text, tag, wanted in (
        (scripted_query(known, rng, Skill(), style), "search", query),
        (scripted_answer(known, rng, Skill(), style), "answer", answer),
    ):
        parsed = parse_block(text, tag, "required" if thoughts == "required" else "optional")
        assert (parsed.content, parsed.valid) == (wanted, True)


@pytest.mark.parametrize("style", STYLES)
def test_accuracy_is_the_share_of_right_turns(style: PromptStyle) -> None:
    rng, skill = random.Random(0), Skill(accuracy=0.7)
    routes = [
        parse_verdict(scripted_route(ALL, rng, skill, style), "verify", ("yes", "no")).content for _ in range(400)
    ]
    queries = [parse_block(scripted_query(HALF, rng, skill, style), "search").content for _ in range(400)]
    answers = [parse_block(scripted_answer(ALL, rng, skill, style), "answer").content for _ in range(400)]
    assert routes.count("yes") / 400 == pytest.approx(0.7, abs=0.08)
    assert queries.count("qb") / 400 == pytest.approx(0.7, abs=0.08)
    assert answers.count("Gold") / 400 == pytest.approx(0.7, abs=0.08)
    assert {*queries, *answers} == {"qb", "wrong", "Gold", "Decoy"}


@pytest.mark.parametrize("style", STYLES)
def test_malformed_is_the_share_of_broken_turns(style: PromptStyle) -> None:
    rng, skill = random.Random(0), Skill(malformed=0.3)
    valid = [parse_block(scripted_query(HALF, rng, skill, style), "search").valid for _ in range(400)]
    assert valid.count(False) / 400 == pytest.approx(0.3, abs=0.08)


def test_task_without_metadata_is_searched_by_its_question() -> None:
    known = Knowledge(Task("b", "Who is it?", "Ana"), (), DECOY)
    assert scripted_query(known, random.Random(0), Skill(), "short") == "<search>Who is it?</search>"
    found = Knowledge(known.task, (Round("x", (passage("P", "It is Ana."),)),), DECOY)
    assert scripted_route(found, random.Random(0), Skill(), "short") == "<verify>yes</verify>"
    assert scripted_answer(known, random.Random(0), Skill(), "short") == "<answer>unknown</answer>"
