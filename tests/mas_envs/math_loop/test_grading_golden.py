import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mas_envs.math_loop.grading import Grade, MathGrader

GOLDEN = Path(__file__).parents[2] / "golden" / "math_answers.jsonl"


def load_cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def graded() -> Iterator[list[tuple[dict[str, Any], Grade]]]:
    with MathGrader(num_workers=1, limit_s=5.0) as grader:
        pairs = []
        for case in load_cases():
            parts = case.get("response_parts") or [(case["response"], 1)]
            completion = "".join(text * times for text, times in parts)
            pairs.append((case, grader.grade(completion, case["truth"])))
        yield pairs


def test_clear_cases_are_graded_as_a_fair_judge_would(graded: list[tuple[dict[str, Any], Grade]]) -> None:
    clear = [(case, grade) for case, grade in graded if case["certainty"] == "clear"]
    wrong = [case["id"] for case, grade in clear if grade.correct != case["right"]]
    assert len(clear) == 282
    assert wrong == []


def test_most_judgement_cases_agree(graded: list[tuple[dict[str, Any], Grade]]) -> None:
    agree = [grade.correct == case["right"] for case, grade in graded if case["certainty"] == "judgement"]
    assert len(agree) == 82
    assert sum(agree) >= 75


def test_no_golden_case_fails_or_runs_out_of_time(graded: list[tuple[dict[str, Any], Grade]]) -> None:
    assert {grade.status for _, grade in graded} == {"graded", "no_answer"}
