"""Policy losses by name, token by token, and their sum over a minibatch.

A learner takes `trainers.aggregation.row_weights` once for a minibatch and sums weight x `token_losses(...).loss` over
microbatches of whole rows; `policy_loss` is that sum for a minibatch that fits in one piece.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.aggregation import Aggregation, row_weights, token_weights
from trainers.input_errors import TrainingInputError
from trainers.names import NameTable

__all__ = [
    "LOSSES",
    "Aggregation",
    "Clip",
    "PolicyLoss",
    "TokenBatch",
    "TokenLoss",
    "TokenLosses",
    "policy_loss",
    "register_loss",
    "row_weights",
    "token_losses",
    "token_weights",
]

MAX_LOG_RATIO = 80.0  # exp(80) = 5.5e34 is finite in float32 and leaves room for the advantage


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """The range in which a ratio of probabilities may move the policy."""

    low: float = 0.2
    """The ratio counts down to 1 - low, >= 0."""
    high: float = 0.2
    """The ratio counts up to 1 + high, >= 0; above `low` it is the clip-higher of DAPO, arXiv 2503.14476."""
    dual: float | None = 3.0
    """With a negative advantage the loss is at most `dual` times its size, > 1; arXiv 1912.09729. None: no bound."""

    def __post_init__(self) -> None:
        for name, value in (("clip_low", self.low), ("clip_high", self.high)):
            if not 0.0 <= value < float("inf"):
                raise TrainingInputError(f"{name} is {value!r}", "a finite number >= 0", f"use {name}=0.2")
        if self.dual is not None and not self.dual > 1.0:
            raise TrainingInputError(f"dual_clip is {self.dual!r}", "None or a number > 1", "use dual_clip=3.0")


@dataclass(frozen=True, slots=True, eq=False)
class TokenBatch:
    """What a loss sees; values outside the mask are zeros, whatever the caller had there."""

    logprobs: Tensor
    """[B, T] float32 or float64, with gradient: the policy being trained."""
    log_ratio: Tensor
    """[B, T] with gradient: `logprobs` less those before the update."""
    advantages: Tensor
    """[B, T]."""
    mask: Tensor
    """[B, T] bool."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """The loss of each token, and which tokens a bound held back."""

    loss: Tensor
    """[B, T] with gradient; 0 outside the mask."""
    is_clipped: Tensor
    """[B, T] bool: the clip range decided the loss."""
    is_dual_clipped: Tensor
    """[B, T] bool: the dual clip decided the loss."""
    log_ratio: Tensor
    """[B, T] without gradient: log of new over old probability; 0 outside the mask."""


TokenLoss = Callable[[TokenBatch, Clip], tuple[Tensor, Tensor, Tensor]]
LOSSES: NameTable[TokenLoss] = NameTable("loss")


def register_loss(name: str) -> Callable[[TokenLoss], TokenLoss]:
    """A decorator that makes a loss known by name: a function of batch and clip to loss and the two flags, [B, T] each.

    >>> @register_loss("squared")
    ... def squared(batch: TokenBatch, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    ...     nowhere = torch.zeros_like(batch.mask)
    ...     return 0.5 * (batch.log_ratio - batch.advantages) ** 2, nowhere, nowhere
    >>> del LOSSES["squared"]  # an example leaves no trace

    Raises:
        TrainingInputError: If the name is taken.
    """
    return LOSSES.add(name)


@register_loss("ppo")
def ppo(batch: TokenBatch, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """Clipped surrogate with a dual clip.

    Source: PPO, arXiv 1707.06347, equation 7, as GRPO uses it token by token; dual clip arXiv 1912.09729, equation 5.
    """
    return _clipped(batch.log_ratio, batch.advantages, clip)


@register_loss("gspo")
def gspo(batch: TokenBatch, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """The clipped surrogate with one ratio per row: the geometric mean of its token ratios.

    Source: GSPO, arXiv 2507.18071, equations 5 to 7, in the token form of equation 13, so that advantages may differ
    inside a row. The paper clips at 3e-4 below and 4e-4 above, with `seq-mean-token-mean`. Differs in: the dual clip
    bounds the row's ratio too; pass `dual_clip=None` for the paper's loss. Needs whole rows.
    """
    length = batch.mask.sum(dim=-1, keepdim=True).clamp(min=1)
    row = batch.log_ratio.sum(dim=-1, keepdim=True) / length
    value = row.detach().expand_as(batch.log_ratio).masked_fill(~batch.mask, 0.0)
    return _clipped(value + (batch.logprobs - batch.logprobs.detach()), batch.advantages, clip)


@register_loss("cispo")
def cispo(batch: TokenBatch, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability weighted by the clipped ratio, through which no gradient flows: every token keeps its gradient.

    Source: CISPO, arXiv 2506.13585 (MiniMax-M1), equations 4 and 5, with `token-mean`; the paper sets no lower bound
    (`clip_low` of 1 or more) and tunes the upper one. There is no dual clip: `clip.dual` has no effect.
    """
    ratio = _ratio(batch.log_ratio.detach())
    weight = ratio.clamp(1.0 - clip.low, 1.0 + clip.high)
    return -weight * batch.advantages * batch.logprobs, weight != ratio, torch.zeros_like(batch.mask)


@register_loss("reinforce")
def reinforce(batch: TokenBatch, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """Advantage times log-probability, no ratio and no bound: the clip range has no effect.

    Source: Williams 1992, https://doi.org/10.1007/BF00992696. Right for one update per batch of fresh rollouts only.
    """
    nowhere = torch.zeros_like(batch.mask)
    return -batch.advantages * batch.logprobs, nowhere, nowhere


def _ratio(log_ratio: Tensor) -> Tensor:
    """exp, finite; an infinite ratio times a zero gradient would be NaN."""
    return log_ratio.clamp(max=MAX_LOG_RATIO).exp()


def _clipped(log_ratio: Tensor, advantages: Tensor, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    ratio = _ratio(log_ratio)
    free = -advantages * ratio
    held = -advantages * ratio.clamp(1.0 - clip.low, 1.0 + clip.high)
    loss = torch.maximum(free, held)
    is_clipped = held > free
    if clip.dual is None:
        return loss, is_clipped, torch.zeros_like(is_clipped)
    bound = -advantages * clip.dual
    is_dual_clipped = (loss > bound) & (advantages < 0)
    return torch.where(is_dual_clipped, bound, loss), is_clipped, is_dual_clipped


def token_losses(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: Clip,
    variant: str | TokenLoss = "ppo",
) -> TokenLosses:
    """The loss of every token, before any weight.

    Args:
        logprobs: [B, T] of the policy being trained, with gradient; half precision is raised to float32.
        old_logprobs: [B, T] of the policy before the update, taken as constant.
        advantages: [B, T], or [B] for one value per row.
        mask: [B, T] bool or numbers: which tokens are trained. Elsewhere the other arguments may hold anything, NaN
            included: it reaches neither loss nor gradient.
        clip: The clip range.
        variant: A name in `LOSSES`, or a function like those.

    Raises:
        TrainingInputError: If shapes do not fit together or the variant is unknown.
    """
    function = LOSSES[variant] if isinstance(variant, str) else variant
    batch = _token_batch(logprobs, old_logprobs, advantages, mask)
    loss, is_clipped, is_dual_clipped = function(batch, clip)
    is_trained = batch.mask
    return TokenLosses(
        loss=loss.masked_fill(~is_trained, 0.0),
        is_clipped=is_clipped & is_trained,
        is_dual_clipped=is_dual_clipped & is_trained,
        log_ratio=batch.log_ratio.detach(),
    )


def _token_batch(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> TokenBatch:
    shape = tuple(logprobs.shape)
    if logprobs.ndim != 2 or shape != tuple(old_logprobs.shape) or shape != tuple(mask.shape):
        raise TrainingInputError(
            f"logprobs, old_logprobs, mask have the shapes {shape}, {tuple(old_logprobs.shape)}, {tuple(mask.shape)}",
            "the same [B, T] for all three",
            "pad all three from the same rows",
        )
    spread = advantages[:, None] if advantages.ndim == 1 else advantages
    if spread.ndim != 2 or spread.shape[0] != shape[0] or (advantages.ndim == 2 and tuple(spread.shape) != shape):
        raise TrainingInputError(
            f"advantages has the shape {tuple(advantages.shape)}",
            f"[{shape[0]}, {shape[1]}], or [{shape[0]}] for one value per row",
            "take the advantages of these rows",
        )
    outside = ~mask.bool()
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    new = logprobs.to(dtype).masked_fill(outside, 0.0)
    old = old_logprobs.detach().to(dtype).masked_fill(outside, 0.0)
    constant = spread.detach().to(dtype).expand(shape).masked_fill(outside, 0.0)
    return TokenBatch(logprobs=new, log_ratio=new - old, advantages=constant, mask=~outside)


@dataclass(frozen=True, slots=True, eq=False)
class PolicyLoss:
    """The loss of a minibatch; scalar tensors, so that nothing waits for the device."""

    loss: Tensor
    """With gradient; 0, not NaN, for an empty mask."""
    clip_frac: Tensor
    """Share of trained tokens at which the clip range decided."""
    dual_clip_frac: Tensor
    """Share of trained tokens at which the dual clip decided."""
    approx_kl: Tensor
    """Mean over trained tokens of old less new log-probability, nats: the k1 estimate of KL(old, new); may be < 0."""


def policy_loss(  # noqa: PLR0913 - the public signature of DESIGN section 4
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
    aggregation: Aggregation = "token-mean",
    variant: str | TokenLoss = "ppo",
) -> PolicyLoss:
    """The policy loss of a whole minibatch, and how often its bounds decided.

    >>> zeros = torch.zeros(1, 2)
    >>> float(policy_loss(zeros, zeros, torch.tensor([1.0]), torch.tensor([[1, 1]])).loss)
    -1.0

    Reproduces the loss of verl, which the published code of Dr. MAS uses. Differs in: an empty mask gives 0 and a row
    without tokens counts as a row of loss 0, where verl's `seq-mean-token-mean` gives NaN; log ratios above 80 count as
    80, where verl's gradient is NaN.

    Args:
        logprobs: As for `token_losses`, like the next three.
        old_logprobs: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T].
        clip_low: As `Clip.low`.
        clip_high: As `Clip.high`.
        dual_clip: As `Clip.dual`.
        aggregation: As for `token_weights`; `seq-mean-token-sum-norm` divides by T.
        variant: As for `token_losses`.

    Raises:
        TrainingInputError: If shapes do not fit together, a bound is impossible or a name unknown.
    """
    clip = Clip(low=clip_low, high=clip_high, dual=dual_clip)
    tokens = token_losses(logprobs, old_logprobs, advantages, mask, clip=clip, variant=variant)
    dtype = tokens.loss.dtype
    each = token_weights(mask, "token-mean", dtype=dtype)
    return PolicyLoss(
        loss=(token_weights(mask, aggregation, dtype=dtype) * tokens.loss).sum(),
        clip_frac=(each * tokens.is_clipped).sum(),
        dual_clip_frac=(each * tokens.is_dual_clipped).sum(),
        approx_kl=-(each * tokens.log_ratio).sum(),
    )
