"""The gradient of a minibatch does not depend on how its rows are cut into microbatches."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from trainers.losses import LOSSES, Aggregation, Clip, policy_loss, row_weights, token_losses

ROWS, TOKENS, FEATURES, WORDS = 8, 7, 5, 11


class Minibatch:
    """A linear policy over words, rows of very different length, one of them without a trained token."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.inputs, self.advantages = normal(ROWS, TOKENS, FEATURES), normal(ROWS)
        self.words = torch.randint(WORDS, (ROWS, TOKENS), generator=generator)
        self.weight = normal(FEATURES, WORDS).requires_grad_()
        self.old = self.logprobs(slice(None)).detach() + 0.4 * normal(ROWS, TOKENS)
        self.lengths = torch.tensor([7, 1, 3, 0, 2, 5, 1, 6])
        self.mask = torch.arange(TOKENS) < self.lengths[:, None]

    def logprobs(self, rows: slice) -> Tensor:
        scores = torch.log_softmax(self.inputs[rows] @ self.weight, dim=-1)
        return scores.gather(-1, self.words[rows, :, None]).squeeze(-1)

    def gradient(self, size: int, aggregation: Aggregation, variant: str) -> Tensor:
        """The sum of the gradients of microbatches of `size` rows, each cut to its own longest row."""
        weights = row_weights(self.lengths, aggregation, norm_tokens=TOKENS)
        total = torch.zeros_like(self.weight)
        for start in range(0, ROWS, size):
            rows = slice(start, start + size)
            width = int(self.lengths[rows].max())
            tokens = token_losses(
                self.logprobs(rows)[:, :width],
                self.old[rows, :width],
                self.advantages[rows],
                self.mask[rows, :width],
                clip=Clip(),
                variant=variant,
            )
            total += torch.autograd.grad((weights[rows, None] * tokens.loss).sum(), self.weight)[0]
        return total


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
@pytest.mark.parametrize("variant", list(LOSSES))
def test_the_gradient_does_not_depend_on_the_cut(aggregation: Aggregation, variant: str) -> None:
    minibatch = Minibatch(seed=5)
    loss = policy_loss(
        minibatch.logprobs(slice(None)),
        minibatch.old,
        minibatch.advantages,
        minibatch.mask,
        aggregation=aggregation,
        variant=variant,
    ).loss
    (whole,) = torch.autograd.grad(loss, minibatch.weight)
    assert whole.norm() > 1e-3
    for size in (1, 3, ROWS):
        assert torch.allclose(minibatch.gradient(size, aggregation, variant), whole, rtol=0.0, atol=1e-12), size


def test_row_weights_need_one_length_per_row() -> None:
    with pytest.raises(ValueError, match=r"lengths has the shape \(2, 2\); expected \[B\], .*; pass mask.sum\(dim=1\)"):
        row_weights(torch.ones(2, 2), "token-mean")


@pytest.mark.parametrize("norm_tokens", [None, 0])
def test_a_fixed_divisor_has_to_be_given(norm_tokens: int | None) -> None:
    with pytest.raises(
        ValueError, match=r"norm_tokens is (None|0); expected a positive number of tokens; pass the most"
    ):
        row_weights(torch.ones(2), "seq-mean-token-sum-norm", norm_tokens=norm_tokens)
