"""Importance weights against values worked out by hand."""

import math
from typing import Any

import pytest
import torch

from trainers.importance import ImportanceLevel, ImportanceMode, importance_weights

# Log ratios: row 0 [0.5, 1.0, -0.2] with sum 1.3; row 1 [-0.4, 0.1] with sum -0.3, and padding that must not matter.
LEARNER = torch.tensor([[-0.5, -1.0, -1.2], [-1.4, -0.9, float("nan")]], dtype=torch.float64)
ENGINE = torch.tensor([[-1.0, -2.0, -1.0], [-1.0, -1.0, 5.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
ROW_0, ROW_1 = [math.exp(0.5), math.e, math.exp(-0.2)], [math.exp(-0.4), math.exp(0.1), 0.0]


@pytest.mark.parametrize(
    ("mode", "level", "expected", "capped"),
    [
        ("truncate", "token", [[ROW_0[0], 2.0, ROW_0[2]], ROW_1], 1 / 5),
        ("mask", "token", [[ROW_0[0], 0.0, ROW_0[2]], ROW_1], 1 / 5),
        ("truncate", "sequence", [[2.0] * 3, [math.exp(-0.3)] * 2 + [0.0]], 3 / 5),
        ("mask", "sequence", [[0.0] * 3, [math.exp(-0.3)] * 2 + [0.0]], 3 / 5),
    ],
)
def test_weights_are_as_worked_out_by_hand(
    mode: ImportanceMode, level: ImportanceLevel, expected: list[list[float]], capped: float
) -> None:
    result = importance_weights(LEARNER, ENGINE, MASK, mode=mode, level=level)
    assert result.weights[0].tolist() == pytest.approx(expected[0])
    assert result.weights[1].tolist() == pytest.approx(expected[1])
    assert float(result.capped_frac) == pytest.approx(capped)
    assert float(result.logprob_gap) == pytest.approx((0.5 + 1.0 + 0.2 + 0.4 + 0.1) / 5)


def test_an_engine_that_agrees_gives_weights_of_one_and_no_gradient() -> None:
    learner = torch.full((2, 3), -1.0, requires_grad=True)
    result = importance_weights(learner, learner.detach(), MASK)
    assert torch.equal(result.weights, MASK.float())
    assert not result.weights.requires_grad
    assert float(result.capped_frac) == 0.0


def test_an_empty_mask_and_an_overflow_stay_finite() -> None:
    nothing = importance_weights(LEARNER, ENGINE, torch.zeros(2, 3))
    assert [float(nothing.weights.sum()), float(nothing.capped_frac), float(nothing.logprob_gap)] == [0.0, 0.0, 0.0]
    far = importance_weights(torch.zeros(1, 2), torch.full((1, 2), -400.0), torch.ones(1, 2), level="sequence")
    assert far.weights.tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cap": 0.0}, r"cap is 0.0; expected a number > 0; use cap=2.0"),
        ({"mode": "clip"}, r"unknown mode 'clip'; expected one of: truncate, mask; pick one of these"),
        ({"level": "row"}, r"unknown level 'row'; expected one of: token, sequence; pick one of these"),
        (
            {"mask": MASK[:1]},
            r"the shapes are \[\(1, 3\), \(2, 3\)\]; expected one \[B, T\] for all; pad from the same",
        ),
    ],
)
def test_bad_input_says_what_was_wrong_what_was_expected_and_what_to_do(change: dict[str, Any], message: str) -> None:
    good = {"policy_logprobs_at_start": LEARNER, "behaviour_logprobs": ENGINE, "mask": MASK}
    with pytest.raises(ValueError, match=message):
        importance_weights(**{**good, **change})
