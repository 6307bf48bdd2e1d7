"""The weight of each token in a loss, worked out once for a whole minibatch.

A loss is the sum of weight x token loss. Weights depend on nothing but the lengths of all rows of the minibatch, so a
learner takes them once, cuts the rows into microbatches of any size, sums, and gets the same gradient every time.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from trainers.input_errors import TrainingInputError

__all__ = ["Aggregation", "row_weights", "token_weights"]

Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def row_weights(
    lengths: Tensor, aggregation: Aggregation, *, norm_tokens: int | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The weight that each token of a row has in the loss; the same for all tokens of a row.

    >>> row_weights(torch.tensor([3, 1]), "token-mean")
    tensor([0.2500, 0.2500], dtype=torch.float64)
    >>> row_weights(torch.tensor([3, 1]), "seq-mean-token-mean")
    tensor([0.1667, 0.5000], dtype=torch.float64)

    Sources: `token-mean` DAPO, arXiv 2503.14476, equation 8; `seq-mean-token-mean` GRPO, arXiv 2402.03300, equation 3;
    `seq-mean-token-sum-norm` Dr. GRPO, arXiv 2503.20783. Differs in: the last is not divided by the number of rows, as
    in verl; divide the learning rate to match the paper.

    Args:
        lengths: [B] integers, trained tokens of each row of the minibatch (on all ranks together), 0 allowed. A row
            without tokens counts as a row of loss 0.
        aggregation: `token-mean` all tokens alike; `seq-mean-token-sum` and `seq-mean-token-mean` the mean over rows of
            their sum or mean; `seq-mean-token-sum-norm` the sum over rows of their sum divided by `norm_tokens`.
        norm_tokens: The divisor of `seq-mean-token-sum-norm`, tokens, > 0: a constant such as the longest completion
            that the settings allow. Other aggregations ignore it.
        dtype: Of the result.

    Returns:
        [B], finite, >= 0.

    Raises:
        TrainingInputError: If the aggregation is unknown, the lengths are not [B], or `norm_tokens` is missing.
    """
    if lengths.ndim != 1:
        raise TrainingInputError(
            f"lengths has the shape {tuple(lengths.shape)}", "[B], one length per row", "pass mask.sum(dim=1)"
        )
    num_rows = max(lengths.numel(), 1)
    ones = torch.ones_like(lengths, dtype=dtype)
    match aggregation:
        case "token-mean":
            weights = ones / lengths.sum().clamp(min=1).to(dtype)
        case "seq-mean-token-sum":
            weights = ones / num_rows
        case "seq-mean-token-mean":
            weights = ones / (lengths.clamp(min=1).to(dtype) * num_rows)
        case "seq-mean-token-sum-norm":
            if norm_tokens is None or norm_tokens <= 0:
                raise TrainingInputError(
                    f"norm_tokens is {norm_tokens!r}",
                    "a positive number of tokens",
                    "pass the most that a completion may have",
                )
            weights = ones / norm_tokens
        case _:
            raise TrainingInputError(
                f"unknown aggregation {aggregation!r}",
                f"one of: {', '.join(get_args(Aggregation))}",
                "pick one of these",
            )
    return weights


def token_weights(
    mask: Tensor, aggregation: Aggregation, *, norm_tokens: int | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """`row_weights` spread over a mask.

    Args:
        mask: [B, T], the loss mask of the whole minibatch.
        aggregation: As for `row_weights`.
        norm_tokens: As for `row_weights`; None: T, the width of the mask.
        dtype: Of the result.

    Returns:
        [B, T], 0 where the mask is not set.
    """
    is_trained = mask.bool()
    width = max(mask.shape[-1], 1) if norm_tokens is None else norm_tokens
    weights = row_weights(is_trained.sum(dim=-1), aggregation, norm_tokens=width, dtype=dtype)
    return weights[:, None] * is_trained
