"""Exact match and F1: equal to the reference vectors, and what must hold for any text."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.search.scoring import exact_match, f1, normalise

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = [json.loads(line) for line in (GOLDEN / "search_answers.jsonl").read_text("utf-8").splitlines()[1:]]
ANSWERS = st.lists(st.text(), max_size=4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_scores_equal_the_reference(case: dict[str, Any]) -> None:
    assert exact_match(case["prediction"], case["golds"]) is case["em"]
    assert f1(case["prediction"], case["golds"]) == pytest.approx(case["f1"], abs=1e-6)


@given(st.text(), ANSWERS)
def test_f1_is_a_share_and_one_for_an_exact_match(prediction: str, golds: list[str]) -> None:
    score = f1(prediction, golds)
    assert 0.0 <= score <= 1.0
    if exact_match(prediction, golds):
        assert score == 1.0


@given(st.text(), ANSWERS, st.text())
def test_another_gold_answer_never_lowers_a_score(prediction: str, golds: list[str], more: str) -> None:
    assert exact_match(prediction, [*golds, more]) >= exact_match(prediction, golds)
    assert f1(prediction, [*golds, more]) >= f1(prediction, golds)


@given(st.text())
def test_a_text_matches_itself_and_its_upper_outer_spaces(text: str) -> None:
    assert exact_match(text, [text])
    assert exact_match(f"  {text}\n", [text])
    assert f1(text, text) == 1.0


@given(st.text(), st.text())
def test_f1_does_not_care_which_side_is_gold(left: str, right: str) -> None:
    assert f1(left, [right]) == pytest.approx(f1(right, [left]))


@given(st.text())
def test_normalising_leaves_single_spaces_only(text: str) -> None:
    assert normalise(text) == " ".join(normalise(text).split())


def test_aliases_count_only_where_they_are_given() -> None:
    assert not exact_match("NYC", ["New York City"])
    assert exact_match("NYC", ["New York City"], aliases=["NYC", "Big Apple"])


def test_one_gold_answer_may_be_a_plain_str() -> None:
    assert exact_match("a", "A") is exact_match("a", ["A"])
    assert not exact_match("b", "ab")
