"""KL estimates and entropy against values worked out by hand."""

import math

import pytest
import torch

from trainers.kl import KlEstimate, kl_tokens, token_entropy

NEW = torch.tensor([[-1.0, -2.0, -0.5, float("nan")]], dtype=torch.float64)
REFERENCE = torch.tensor([[-1.5, -1.0, -0.5, 0.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k1", [0.5, -1.0, 0.0, 0.0]),
        ("k2", [0.125, 0.5, 0.0, 0.0]),
        ("k3", [math.exp(-0.5) - 1 + 0.5, math.e - 2, 0.0, 0.0]),
    ],
)
def test_estimates_are_as_worked_out_by_hand(kind: KlEstimate, expected: list[float]) -> None:
    assert kl_tokens(NEW, REFERENCE, MASK, kind)[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_unbiased_estimates_average_to_the_divergence(kind: KlEstimate) -> None:
    policy, reference = (
        torch.log_softmax(torch.tensor([row], dtype=torch.float64), -1) for row in ([0.0, 1.0, -1.0], [0.5, 0.0, 0.2])
    )
    average = (policy.exp() * kl_tokens(policy, reference, torch.ones(1, 3), kind)).sum()
    assert float(average) == pytest.approx(float((policy.exp() * (policy - reference)).sum()))


@pytest.mark.parametrize(("kind", "slope"), [("k1", 1.0), ("k2", 0.5), ("k3", 1 - math.exp(-0.5))])
def test_gradients_are_as_worked_out_by_hand(kind: KlEstimate, slope: float) -> None:
    new = torch.tensor([[-1.0]], requires_grad=True)
    kl_tokens(new, torch.tensor([[-1.5]]), torch.ones(1, 1), kind).sum().backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    assert float(new.grad) == pytest.approx(slope)


def test_k3_stays_finite_where_the_policy_has_given_up_a_token() -> None:
    new = torch.tensor([[-500.0]], requires_grad=True)
    value = kl_tokens(new, torch.zeros(1, 1), torch.ones(1, 1), "k3").sum()
    (gradient,) = torch.autograd.grad(value, new)
    assert value.item() == pytest.approx(math.exp(20) - 1 - 500)
    assert gradient.isfinite().all()


def test_an_unknown_estimate_and_unequal_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown KL estimate 'k4'; expected one of: k1, k2, k3; pick one of these"):
        kl_tokens(NEW, REFERENCE, MASK, "k4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the shapes are \[\(1, 3\), \(1, 4\)\]; expected one \[B, T\] for all; pad"):
        kl_tokens(NEW, REFERENCE, MASK[:, :3])


def test_entropy_is_that_of_the_distribution_sampled_from() -> None:
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]]], dtype=torch.float64))
    assert token_entropy(logits)[0].tolist() == pytest.approx([1.5 * math.log(2), math.log(3)])
    colder = token_entropy(logits, temperature=0.5)[0, 0]
    weights = [0.25, 0.0625, 0.0625]
    assert float(colder) == pytest.approx(-sum(w / 0.375 * math.log(w / 0.375) for w in weights))


def test_forbidden_tokens_leave_entropy_and_its_gradient_finite() -> None:
    logits = torch.tensor([[[0.0, 1.0, -float("inf")]]], requires_grad=True)
    entropy = token_entropy(logits)
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    p = 1 / (1 + math.e)
    assert entropy.item() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p))
    assert gradient.isfinite().all()
    assert float(gradient[0, 0, 0]) == pytest.approx(p * (1 - p))  # dH/dz_0 = p (1 - p) (z_1 - z_0)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature is 0.0; expected a number > 0; pass what the sampler used"):
        token_entropy(torch.zeros(1, 1, 2), temperature=0.0)
