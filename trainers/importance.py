"""Weights for the gap between the engine that sampled the tokens and the learner that trains on them."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from trainers.input_errors import TrainingInputError

__all__ = ["ImportanceLevel", "ImportanceMode", "ImportanceWeights", "importance_weights"]

ImportanceMode = Literal["truncate", "mask"]
ImportanceLevel = Literal["token", "sequence"]

MAX_LOG_RATIO = 80.0


@dataclass(frozen=True, slots=True, eq=False)
class ImportanceWeights:
    """What each token's loss is multiplied by, and how often the cap decided; no gradient."""

    weights: Tensor
    """[B, T] in [0, cap]; 0 outside the mask."""
    capped_frac: Tensor
    """Scalar: share of trained tokens whose ratio was above the cap; 0 for an empty mask."""
    logprob_gap: Tensor
    """Scalar: mean over trained tokens of the absolute difference of the log-probabilities, nats."""


def importance_weights(
    policy_logprobs_at_start: Tensor,
    behaviour_logprobs: Tensor,
    mask: Tensor,
    cap: float = 2.0,
    mode: ImportanceMode = "truncate",
    level: ImportanceLevel = "token",
) -> ImportanceWeights:
    """Truncated or masked importance weights of the tokens.

    Sources: truncated importance sampling between engine and learner, F. Yao and others 2025,
    https://fengyao.notion.site/off-policy-rl (token, truncate); J. Liu and others 2025, When speed kills stability,
    https://yingru.notion.site/When-Speed-Kills-Stability-271211a558b7808d8b12d403fd15edda (sequence, and mask).
    Truncation itself: Ionides 2008, https://doi.org/10.1198/106186008X320456.

    Args:
        policy_logprobs_at_start: [B, T] by the learner, with the weights that were given to the engine.
        behaviour_logprobs: [B, T] as the engine reported them when it sampled.
        mask: [B, T] bool or numbers. Elsewhere the others may hold anything.
        cap: Largest ratio that counts, > 0.
        mode: `truncate`: a larger ratio counts as `cap`; `mask`: its token, or row, is left out with weight 0.
        level: `token`: each token has its ratio; `sequence`: all tokens of a row have the product of their ratios.

    Raises:
        TrainingInputError: If shapes differ, the cap is not positive, or a name is unknown.
    """
    _check(policy_logprobs_at_start, behaviour_logprobs, mask, cap)
    for name, value, known in (("mode", mode, get_args(ImportanceMode)), ("level", level, get_args(ImportanceLevel))):
        if value not in known:
            raise TrainingInputError(f"unknown {name} {value!r}", f"one of: {', '.join(known)}", "pick one of these")
    is_trained = mask.bool()
    dtype = torch.promote_types(policy_logprobs_at_start.dtype, torch.float32)
    learner = policy_logprobs_at_start.detach().to(dtype).masked_fill(~is_trained, 0.0)
    gap = learner - behaviour_logprobs.detach().to(dtype).masked_fill(~is_trained, 0.0)
    log_ratio = gap.sum(dim=-1, keepdim=True).expand_as(gap) if level == "sequence" else gap
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    is_capped = (ratio > cap) & is_trained
    weights = ratio.masked_fill(is_capped, cap if mode == "truncate" else 0.0).masked_fill(~is_trained, 0.0)
    count = is_trained.sum().clamp(min=1)
    return ImportanceWeights(weights=weights, capped_frac=is_capped.sum() / count, logprob_gap=gap.abs().sum() / count)


def _check(policy: Tensor, behaviour: Tensor, mask: Tensor, cap: float) -> None:
    shapes = {tuple(tensor.shape) for tensor in (policy, behaviour, mask)}
    if len(shapes) > 1:
        raise TrainingInputError(f"the shapes are {sorted(shapes)}", "one [B, T] for all", "pad from the same rows")
    if not cap > 0.0:
        raise TrainingInputError(f"cap is {cap!r}", "a number > 0", "use cap=2.0")
