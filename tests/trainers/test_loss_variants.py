"""GSPO, CISPO and REINFORCE against values worked out by hand, and losses that users register."""

import math

import pytest
import torch
from torch import Tensor

from trainers.losses import LOSSES, Clip, PolicyLoss, TokenBatch, policy_loss, register_loss

# Two rows. Log ratios: row 0 [0.2, 0.4, -0.3] with mean 0.1; row 1 [-0.5, 0.1] with mean -0.2.
OLD = [[-1.0, -2.0, -1.5], [-0.7, -0.9, 0.0]]
NEW = [[-0.8, -1.6, -1.8], [-1.2, -0.8, 0.0]]
MASK = [[1, 1, 1], [1, 1, 0]]
ADVANTAGES = [1.5, -2.0]


def run(variant: str, **options: object) -> tuple[PolicyLoss, list[list[float]]]:
    new = torch.tensor(NEW, dtype=torch.float64, requires_grad=True)
    old, advantages = (torch.tensor(values, dtype=torch.float64) for values in (OLD, ADVANTAGES))
    result = policy_loss(new, old, advantages, torch.tensor(MASK), variant=variant, **options)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(result.loss, new)
    return result, gradient.tolist()


def test_gspo_uses_the_geometric_mean_of_the_ratios_of_a_row() -> None:
    result, gradient = run("gspo", aggregation="seq-mean-token-mean")
    # exp(0.1) = 1.10517 is inside the range; exp(-0.2) = 0.81873 is inside too
    assert result.loss.item() == pytest.approx(0.5 * (-1.5 * math.exp(0.1) + 2.0 * math.exp(-0.2)))
    # d s_i / d logprob = s_i / length
    expected = [[-1.5 * math.exp(0.1) / 6] * 3, [2.0 * math.exp(-0.2) / 4] * 2 + [0.0]]
    assert gradient[0] == pytest.approx(expected[0])
    assert gradient[1] == pytest.approx(expected[1])
    assert float(result.clip_frac) == 0.0


def test_gspo_clips_whole_rows() -> None:
    result, gradient = run("gspo", aggregation="seq-mean-token-mean", clip_low=3e-4, clip_high=4e-4)
    # Both ratios leave the range on the side where the smaller objective is the constant one.
    assert result.loss.item() == pytest.approx(0.5 * (-1.5 * 1.0004 + 2.0 * 0.9997))
    assert gradient == [[0.0] * 3, [0.0] * 3]
    assert float(result.clip_frac) == 1.0


def test_gspo_is_ppo_for_rows_of_one_token() -> None:
    new, old = torch.tensor([[-0.3], [-2.0]]), torch.tensor([[-1.0], [-1.0]])
    advantages, mask = torch.tensor([1.0, -1.0]), torch.ones(2, 1)
    gspo, ppo = (policy_loss(new, old, advantages, mask, variant=variant) for variant in ("gspo", "ppo"))
    assert torch.equal(gspo.loss, ppo.loss)


def test_cispo_weighs_log_probabilities_with_the_clipped_ratio() -> None:
    result, gradient = run("cispo", clip_low=0.2, clip_high=0.28)
    # Ratios exp(0.2) = 1.221, exp(0.4) = 1.492 -> 1.28, exp(-0.3) = 0.741 -> 0.8; exp(-0.5) -> 0.8, exp(0.1) = 1.105
    weights = [[math.exp(0.2), 1.28, 0.8], [0.8, math.exp(0.1)]]
    terms = [weights[0][0] * 0.8, 1.28 * 1.6, 0.8 * 1.8], [0.8 * 1.2, weights[1][1] * 0.8]  # times -logprob
    assert result.loss.item() == pytest.approx((1.5 * sum(terms[0]) - 2.0 * sum(terms[1])) / 5)
    assert gradient[0] == pytest.approx([-1.5 * weight / 5 for weight in weights[0]])
    assert gradient[1] == pytest.approx([2.0 * weight / 5 for weight in weights[1]] + [0.0])
    assert float(result.clip_frac) == pytest.approx(3 / 5)


def test_cispo_without_a_lower_bound_keeps_small_ratios() -> None:
    _, gradient = run("cispo", clip_low=1.0, clip_high=0.28)
    assert gradient[0][2] == pytest.approx(-1.5 * math.exp(-0.3) / 5)


def test_reinforce_ignores_the_ratio() -> None:
    result, gradient = run("reinforce")
    assert result.loss.item() == pytest.approx((1.5 * (0.8 + 1.6 + 1.8) - 2.0 * (1.2 + 0.8)) / 5)
    assert gradient[0] == pytest.approx([-0.3] * 3)
    assert gradient[1] == pytest.approx([0.4, 0.4, 0.0])


def test_all_variants_agree_in_the_gradient_on_fresh_samples() -> None:
    gradients = []
    for variant in ("ppo", "gspo", "cispo", "reinforce"):
        new = torch.tensor(NEW, dtype=torch.float64, requires_grad=True)
        loss = policy_loss(
            new, new.detach(), torch.tensor(ADVANTAGES, dtype=torch.float64), torch.tensor(MASK), variant=variant
        ).loss
        gradients.append(torch.autograd.grad(loss, new)[0].flatten().tolist())
    assert all(gradient == pytest.approx(gradients[0]) for gradient in gradients[1:])


def squared(batch: TokenBatch, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    nowhere = torch.zeros_like(batch.mask)
    return (batch.log_ratio - batch.advantages) ** 2, nowhere, nowhere


def test_a_registered_loss_is_called_by_name_and_a_function_without_one() -> None:
    new, old, advantages, mask = (
        torch.tensor([[-1.0, 0.0]]),
        torch.tensor([[-2.0, 0.0]]),
        torch.ones(1),
        torch.ones(1, 2),
    )
    assert float(policy_loss(new, old, advantages, mask, variant=squared).loss) == 0.5
    register_loss("squared")(squared)
    try:
        assert float(policy_loss(new, old, advantages, mask, variant="squared").loss) == 0.5
        with pytest.raises(ValueError, match=r"the loss 'squared' exists already"):
            register_loss("squared")
    finally:
        del LOSSES["squared"]
    assert list(LOSSES) == ["ppo", "gspo", "cispo", "reinforce"]
    assert len(LOSSES) == 4
