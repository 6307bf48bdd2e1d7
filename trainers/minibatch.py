"""The gradient of one agent's share of a minibatch, whatever the size of the pieces it is computed in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.batch import TrainingRow
from trainers.config import AlgorithmSettings
from trainers.importance import importance_weights
from trainers.kl import kl_tokens
from trainers.logprobs import TokenScores, score_completions
from trainers.losses import Clip, TokenLosses, token_losses

__all__ = ["Share", "WeightedRow", "backward", "row_logprobs"]


@dataclass(frozen=True)
class WeightedRow:
    """A row of a minibatch with all that the loss needs of it."""

    row: TrainingRow
    """Its tokens."""
    advantage: float
    """Its advantage."""
    weight: float
    """Weight of each of its tokens in the minibatch's loss."""
    old_logprobs: Tensor | None = None
    """[T] before the first update; None: those of this very forward pass."""
    reference_logprobs: Tensor | None = None
    """[T] under the reference; None without a KL penalty."""


@dataclass
class Share:
    """Sums over the tokens of one agent in one minibatch."""

    loss: float = 0.0
    """Its part of the loss."""
    num_tokens: int = 0
    """Tokens computed; rows that cannot give a gradient are left out."""
    clipped: float = 0.0
    """Tokens at which the clip range decided."""
    dual_clipped: float = 0.0
    """Tokens at which the dual clip decided."""
    old_less_new: float = 0.0
    """Sum of old less new logprobs, nats."""
    engine_gap: float = 0.0
    """Sum of absolute differences between the engine's and the learner's logprobs, nats."""
    reference_kl: float = 0.0
    """Sum of the KL estimate to the reference, nats."""
    capped: float = 0.0
    """Tokens whose importance ratio was over the cap."""


Sequences = dict[tuple[tuple[int, ...], tuple[int, ...]], list[WeightedRow]]
"""Prompt and completion -> the rows that hold exactly these tokens."""


def backward(
    model: Any, items: Sequence[WeightedRow], algorithm: AlgorithmSettings, *, token_budget: int, temperature: float
) -> Share:
    """Add the gradient of these rows to the parameters; returns what was seen on the way.

    Distinct sequences are computed once. Rows without an advantage are left out when they can give no gradient: their
    weight stays in the other rows' denominator.

    Args:
        model: A transformers causal language model, the right adapter active.
        items: Rows of one agent.
        algorithm: Loss settings.
        token_budget: Tokens of one forward pass, padding included.
        temperature: Temperature the completions were sampled at.
    """
    always = algorithm.kl.coef > 0.0 or algorithm.entropy_coef > 0.0
    share = Share()
    for sequences in microbatches([item for item in items if always or item.advantage != 0.0], token_budget):
        scores = _score(model, sequences, temperature, with_entropy=algorithm.entropy_coef > 0.0)
        lengths = [len(completion) for _, completion in sequences]
        entropies = torch.split(scores.entropy, lengths) if scores.entropy is not None else [None] * len(lengths)
        rows, logprobs, entropy = [], [], []
        for own, own_entropy, same in zip(
            torch.split(scores.logprobs, lengths), entropies, sequences.values(), strict=True
        ):
            rows += same
            logprobs += [own] * len(same)
            entropy += [own_entropy] * len(same)
        _backward_rows(rows, logprobs, entropy, algorithm, share)
    return share


@torch.no_grad()
def row_logprobs(model: Any, rows: Sequence[TrainingRow], *, token_budget: int, temperature: float) -> list[Tensor]:
    """[T] logprobs of each row's completion under a model, without a gradient."""
    found: dict[int, Tensor] = {}
    for sequences in microbatches([WeightedRow(row, 0.0, 0.0) for row in rows], token_budget):
        scores = _score(model, sequences, temperature, with_entropy=False)
        parts = torch.split(scores.logprobs, [len(completion) for _, completion in sequences])
        for part, same in zip(parts, sequences.values(), strict=True):
            found.update({id(item.row): part for item in same})
    return [found[id(row)] for row in rows]


def microbatches(items: Sequence[WeightedRow], token_budget: int) -> Iterator[Sequences]:
    """Distinct sequences in order of length, cut so that rows x longest stays within the budget (or a single row)."""
    distinct: Sequences = {}
    for item in items:
        distinct.setdefault((item.row.prompt_ids, item.row.completion_ids), []).append(item)
    batch: Sequences = {}
    for key in sorted(distinct, key=lambda key: len(key[0]) + len(key[1])):
        longest = len(key[0]) + len(key[1])
        if batch and longest * (len(batch) + 1) > token_budget:
            yield batch
            batch = {}
        batch[key] = distinct[key]
    if batch:
        yield batch


def _score(model: Any, sequences: Sequences, temperature: float, *, with_entropy: bool) -> TokenScores:
    return score_completions(
        model,
        [prompt for prompt, _ in sequences],
        [completion for _, completion in sequences],
        temperature=temperature,
        with_entropy=with_entropy,
    )


def _backward_rows(
    rows: Sequence[WeightedRow],
    row_values: Sequence[Tensor],
    entropies: Sequence[Tensor | None],
    algorithm: AlgorithmSettings,
    share: Share,
) -> None:
    logprobs = _padded(row_values)
    device = logprobs.device
    mask = _padded([torch.ones_like(values, dtype=torch.bool) for values in row_values])
    now = [values.detach() for values in row_values]
    old = _padded(
        [own if item.old_logprobs is None else item.old_logprobs for item, own in zip(rows, now, strict=True)]
    )
    behaviour = _padded([torch.tensor(item.row.behaviour_logprobs) for item in rows]).to(device)
    advantages = torch.tensor([item.advantage for item in rows], device=device)
    weights = torch.tensor([item.weight for item in rows], device=device)[:, None] * mask
    clip = Clip(low=algorithm.clip_low, high=algorithm.clip_high, dual=algorithm.dual_clip)
    tokens = token_losses(logprobs, old.to(device), advantages, mask, clip=clip, variant=algorithm.loss)
    value = tokens.loss
    settings = algorithm.importance
    if settings.mode != "off":
        correction = importance_weights(old.to(device), behaviour, mask, settings.cap, settings.mode, settings.level)
        value = value * correction.weights
        share.capped += float(correction.capped_frac) * int(mask.sum())
    if algorithm.kl.coef > 0.0:
        references = [item.reference_logprobs for item in rows if item.reference_logprobs is not None]
        penalty = kl_tokens(logprobs, _padded(references).to(device), mask, algorithm.kl.estimate)
        value = value + algorithm.kl.coef * penalty
        share.reference_kl += float((penalty.detach() * mask).sum())
    if algorithm.entropy_coef > 0.0:
        value = value - algorithm.entropy_coef * _padded([entropy for entropy in entropies if entropy is not None])
    loss = (weights * value).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    share.loss += float(loss.detach())
    _count(share, tokens, mask, (_padded(now) - behaviour).abs())


def _count(share: Share, tokens: TokenLosses, mask: Tensor, gap: Tensor) -> None:
    share.num_tokens += int(mask.sum())
    share.clipped += float(tokens.is_clipped.sum())
    share.dual_clipped += float(tokens.is_dual_clipped.sum())
    share.old_less_new -= float(tokens.log_ratio.sum())
    share.engine_gap += float((gap * mask).sum())


def _padded(rows: Sequence[Tensor]) -> Tensor:
    """[B, T] of B rows, zeros behind the end."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
