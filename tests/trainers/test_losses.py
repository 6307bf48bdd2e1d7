"""The clipped loss against the reference vectors, odd values, and bad input."""

import json
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import torch
from torch import Tensor

from trainers.losses import Aggregation, Clip, policy_loss, token_losses, token_weights

LINES = (Path(__file__).parents[1] / "golden" / "policy_loss.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES[1:]]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_clipped_loss_reproduces_its_reference_vector(case: dict[str, Any], dtype: torch.dtype) -> None:
    new, old, advantages = (torch.tensor(case[key], dtype=dtype) for key in ("log_prob", "old_log_prob", "advantage"))
    new.requires_grad_()
    for aggregation, expected in case["expected_loss"].items():
        result = policy_loss(
            new,
            old,
            advantages,
            torch.tensor(case["mask"]),
            clip_low=case["clip_low"],
            clip_high=case["clip_high"],
            dual_clip=case["dual_clip_c"],
            aggregation=aggregation,
        )
        loss = result.loss.item()
        if expected is not None:
            assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6), aggregation
        assert float(result.clip_frac) == pytest.approx(case["clip_fraction"], rel=1e-5)
        assert float(result.dual_clip_frac) == pytest.approx(case["lower_clip_fraction"], rel=1e-5)
        assert float(result.approx_kl) == pytest.approx(case["approx_kl"], rel=1e-5, abs=1e-6)
        (gradient,) = torch.autograd.grad(result.loss, new)
        assert gradient.isfinite().all()


def test_every_aggregation_is_in_the_vectors() -> None:
    assert len(CASES) == 17
    assert all(set(case["expected_loss"]) == set(AGGREGATIONS) for case in CASES)


def one(values: list[float]) -> Tensor:
    return torch.tensor([values])


def test_one_advantage_per_row_equals_the_same_advantage_at_every_token() -> None:
    new, old, mask = (
        torch.tensor([[-1.0, -2.0], [-0.5, -0.1]]),
        torch.full((2, 2), -1.0),
        torch.tensor([[1, 1], [1, 0]]),
    )
    per_row = policy_loss(new, old, torch.tensor([2.0, -1.0]), mask)
    per_token = policy_loss(new, old, torch.tensor([[2.0, 2.0], [-1.0, -1.0]]), mask)
    assert torch.equal(per_row.loss, per_token.loss)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("variant", ["ppo", "gspo", "cispo", "reinforce"])
def test_an_empty_mask_gives_zero_and_no_gradient(aggregation: Aggregation, variant: str) -> None:
    new = torch.tensor([[-1.0, float("nan")]], requires_grad=True)
    result = policy_loss(
        new, one([-2.0, 0.0]), one([1.0, float("inf")]), one([0, 0]), aggregation=aggregation, variant=variant
    )
    result.loss.backward()  # type: ignore[no-untyped-call]
    assert [result.loss.item(), float(result.clip_frac), float(result.approx_kl)] == [0.0, 0.0, 0.0]
    assert cast(Tensor, new.grad).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_no_rows_and_no_tokens_give_zero(aggregation: Aggregation) -> None:
    for shape in ((0, 3), (2, 0), (0, 0)):
        zeros = torch.zeros(shape)
        assert float(policy_loss(zeros, zeros, zeros, zeros, aggregation=aggregation).loss) == 0.0


def test_a_row_without_tokens_counts_as_a_row_of_loss_zero() -> None:
    zeros, advantages, mask = torch.zeros(2, 2), torch.tensor([1.0, 1.0]), torch.tensor([[1, 1], [0, 0]])
    losses = {name: float(policy_loss(zeros, zeros, advantages, mask, aggregation=name).loss) for name in AGGREGATIONS}
    assert losses == {
        "token-mean": -1.0,
        "seq-mean-token-sum": -1.0,
        "seq-mean-token-mean": -0.5,
        "seq-mean-token-sum-norm": -1.0,
    }


@pytest.mark.parametrize("variant", ["ppo", "gspo", "cispo", "reinforce"])
def test_values_outside_the_mask_reach_neither_loss_nor_gradient(variant: str) -> None:
    clean, dirty = (torch.tensor([[-1.0, -0.2, padding]], requires_grad=True) for padding in (-3.0, float("nan")))
    old, mask = [-1.1, -0.3], torch.tensor([[True, True, False]])
    nan, inf = float("nan"), float("inf")
    expected = policy_loss(clean, one([*old, -3.0]), one([1.0, 2.0, 0.0]), mask, variant=variant)
    result = policy_loss(dirty, one([*old, -inf]), one([1.0, 2.0, nan]), mask, variant=variant)
    (wanted,) = torch.autograd.grad(expected.loss, clean)
    (gradient,) = torch.autograd.grad(result.loss, dirty)
    assert torch.equal(result.loss, expected.loss)
    assert torch.equal(gradient, wanted)
    assert wanted[0, :2].abs().min() > 0


@pytest.mark.parametrize("variant", ["ppo", "gspo", "cispo"])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("gap", [200.0, -200.0])
def test_an_overflowing_ratio_leaves_loss_and_gradient_finite(variant: str, advantage: float, gap: float) -> None:
    new = torch.tensor([[0.0, 0.0]], requires_grad=True)
    result = policy_loss(new, one([-gap, -gap]), torch.tensor([advantage]), one([1, 1]), variant=variant)
    (gradient,) = torch.autograd.grad(result.loss, new)
    assert result.loss.isfinite()
    assert gradient.isfinite().all()


def test_a_nan_inside_the_mask_is_not_hidden() -> None:
    assert policy_loss(one([float("nan")]), one([0.0]), one([1.0]), one([1])).loss.isnan()


def test_the_dual_clip_can_be_left_out() -> None:
    new, old, advantage = one([2.0]), one([0.0]), one([-1.0])
    assert float(policy_loss(new, old, advantage, one([1]), dual_clip=None).loss) == pytest.approx(7.389056)
    assert float(policy_loss(new, old, advantage, one([1])).loss) == 3.0


def test_half_precision_is_raised_before_anything_is_summed() -> None:
    half = torch.full((1, 4), -1.0, dtype=torch.bfloat16)
    result = policy_loss(half, half.float() - 0.001, torch.ones(1), torch.ones(1, 4))
    assert result.loss.dtype == torch.float32
    assert float(result.approx_kl) == pytest.approx(-0.001, rel=1e-3)


def test_no_gradient_reaches_the_old_policy_or_the_advantages() -> None:
    new, old, advantages = (torch.full((1, 2), value, requires_grad=True) for value in (-1.0, -1.1, 0.5))
    policy_loss(new, old, advantages, torch.ones(1, 2)).loss.backward()  # type: ignore[no-untyped-call]
    assert old.grad is None
    assert advantages.grad is None
    assert new.grad is not None


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"old_logprobs": torch.ones(2, 2)},
            r"shapes \(2, 3\), \(2, 2\), \(2, 3\); expected the same \[B, T\] .*; pad",
        ),
        ({"mask": torch.ones(6)}, r"shapes \(2, 3\), \(2, 3\), \(6,\); expected the same"),
        (
            {"advantages": torch.ones(3)},
            r"advantages has the shape \(3,\); expected \[2, 3\], or \[2\] .*; take the adv",
        ),
        ({"advantages": torch.ones(2, 1)}, r"advantages has the shape \(2, 1\); expected \[2, 3\]"),
        ({"advantages": torch.tensor(1.0)}, r"advantages has the shape \(\); expected \[2, 3\]"),
        ({"clip_low": -0.1}, r"clip_low is -0.1; expected a finite number >= 0; use clip_low=0.2"),
        ({"clip_high": float("nan")}, r"clip_high is nan; expected a finite number >= 0; use clip_high=0.2"),
        ({"dual_clip": 1.0}, r"dual_clip is 1.0; expected None or a number > 1; use dual_clip=3.0"),
        ({"aggregation": "mean"}, r"unknown aggregation 'mean'; expected one of: token-mean, .*; pick one"),
        ({"variant": "gsop"}, r"unknown loss 'gsop'; expected one of: ppo, .*; did you mean 'gspo'"),
    ],
)
def test_bad_input_says_what_was_wrong_what_was_expected_and_what_to_do(change: dict[str, Any], message: str) -> None:
    good = {"logprobs": ONES, "old_logprobs": ONES, "advantages": ONES, "mask": ONES}
    with pytest.raises(ValueError, match=message):
        policy_loss(**{**good, **change})


def test_flags_say_which_tokens_a_bound_held_back() -> None:
    tokens = token_losses(
        one([0.5, 0.0, -0.5, 2.0, 2.0]),
        one([0.0] * 5),
        one([1.0, 1.0, -1.0, -1.0, -1.0]),
        one([1, 1, 1, 1, 0]),
        clip=Clip(),
    )
    assert tokens.is_clipped.tolist() == [[True, False, True, False, False]]
    assert tokens.is_dual_clipped.tolist() == [[False, False, False, True, False]]
    assert tokens.loss[0].tolist() == pytest.approx([-1.2, -1.0, 0.8, 3.0, 0.0])
    assert tokens.log_ratio[0].tolist() == [0.5, 0.0, -0.5, 2.0, 0.0]


def test_weights_of_each_aggregation_are_as_counted_by_hand() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    of_row = {name: token_weights(mask, name)[:, 0].tolist() for name in AGGREGATIONS}
    assert of_row == {
        "token-mean": [0.25, 0.25],
        "seq-mean-token-sum": [0.5, 0.5],
        "seq-mean-token-mean": pytest.approx([1 / 6, 1 / 2]),
        "seq-mean-token-sum-norm": [0.25, 0.25],
    }
    assert token_weights(mask, "seq-mean-token-sum-norm", norm_tokens=100)[0].tolist() == [0.01, 0.01, 0.01, 0.0]
