"""Sampling maths: which token each row draws from its logits, and the logprob it was drawn with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Bools", "Draw", "Floats", "Ints", "Seeds", "draw", "inverse_cdf", "stream", "truncate", "uniforms"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Seeds = npt.NDArray[np.uint64]

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FACTOR_1 = 0xBF58476D1CE4E5B9
_FACTOR_2 = 0x94D049BB133111EB


@dataclass(frozen=True)
class Draw:
    """One sampled token per row."""

    token_ids: Ints
    """[B] int64."""
    logprobs: Floats
    """[B] float64, natural log, under the distribution drawn from; NaN where a row's logits were not finite numbers."""


def stream(seed: int) -> int:
    """Where the random numbers of a seed start, both in [0, 2**64)."""
    state = (seed + _GOLDEN) & _WORD
    state = ((state ^ (state >> 30)) * _FACTOR_1) & _WORD
    state = ((state ^ (state >> 27)) * _FACTOR_2) & _WORD
    return state ^ (state >> 31)


def uniforms(streams: Seeds, positions: Ints) -> Floats:
    """The random number behind each token: a function of the request's stream and the token's place alone.

    Source: SplitMix64 (Steele, Lea and Flood 2014, doi 10.1145/2660193.2660195), started at the mixed seed; a generator
    object for each request would cost more than sampling a short completion.

    Args:
        streams: [B] uint64, each from `stream`.
        positions: [B] index of the token in its completion.

    Returns:
        [B] float64 in [0, 1), multiples of 2**-53.
    """
    state = streams + (positions + 1).astype(np.uint64) * np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FACTOR_1)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_FACTOR_2)
    bits: Seeds = (state ^ (state >> np.uint64(31))) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def draw(logits: "Tensor", uniform: Floats, *, temperature: Floats, top_p: Floats, top_k: Ints) -> Draw:
    """One token per row, by inverse CDF; rows may differ in every setting.

    Args:
        logits: [B, V] raw logits of any float type.
        uniform: [B] in [0, 1).
        temperature: [B]; 0 takes the most likely token and reports its logprob at temperature 1.
        top_p: [B] in (0, 1].
        top_k: [B]; 0 keeps all.

    Returns:
        Tokens and logprobs, each [B].
    """
    greedy = temperature == 0
    logits = logits.float()
    if (scaled := ~greedy & (temperature != 1)).any():
        scale = torch.from_numpy(np.where(scaled, temperature, 1.0)).to(logits)
        logits = (logits - logits.amax(-1, keepdim=True)) / scale.unsqueeze(1)
    logprobs = torch.log_softmax(logits, dim=-1)
    if (truncated := ~greedy & ((top_p < 1) | ((top_k > 0) & (top_k < logits.shape[1])))).any():
        rows = torch.from_numpy(truncated.nonzero()[0]).to(logits.device)
        kept = truncate(logprobs[rows], top_p=top_p[truncated], top_k=top_k[truncated])
        logprobs = logprobs.index_copy(0, rows, kept)
    if greedy.all():
        tokens = logprobs.argmax(-1)
    else:
        tokens = inverse_cdf(logprobs, torch.from_numpy(uniform).to(logprobs.device))
        if greedy.any():
            tokens = torch.where(torch.from_numpy(greedy).to(tokens.device), logprobs.argmax(-1), tokens)
    chosen = logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return Draw(tokens.cpu().numpy(), chosen.double().cpu().numpy())


def truncate(logprobs: "Tensor", *, top_p: Floats, top_k: Ints) -> "Tensor":
    """The same distributions cut to their likely tokens and renormalised; top_k is applied first, then top_p.

    Args:
        logprobs: [B, V] float32.
        top_p: [B]; the smallest set of tokens with this much probability stays, at least one.
        top_k: [B]; exactly this many stay (of equal ones those with the lower ids); 0 keeps all.

    Returns:
        [B, V] float32 logprobs, -inf for the tokens that were cut.
    """
    vocabulary = logprobs.shape[1]
    ordered, order = torch.sort(logprobs, dim=-1, descending=True, stable=True)
    limit = torch.from_numpy(np.where(top_k > 0, top_k, vocabulary)).to(logprobs.device).unsqueeze(1)
    ordered = ordered.masked_fill(torch.arange(vocabulary, device=logprobs.device) >= limit, -torch.inf)
    mass = torch.softmax(ordered, dim=-1, dtype=torch.float64).cumsum(-1)
    before = torch.cat([torch.zeros_like(mass[:, :1]), mass[:, :-1]], dim=-1)
    wanted = torch.from_numpy(top_p).to(mass).unsqueeze(1)
    ordered = ordered.masked_fill((before >= wanted) & (wanted < 1), -torch.inf)
    return torch.empty_like(logprobs).scatter_(1, order, torch.log_softmax(ordered, dim=-1))


def inverse_cdf(logprobs: "Tensor", uniform: "Tensor") -> "Tensor":
    """The token whose slice of the cumulative distribution holds the uniform number; never one of probability 0.

    Args:
        logprobs: [B, V].
        uniform: [B] float64 in [0, 1).

    Returns:
        [B] int64; rows with NaN logprobs give some token in range.
    """
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # Below the rounded total, so that the search ends at or before the last token of positive probability.
    target = torch.minimum(uniform.unsqueeze(1) * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=logprobs.shape[1] - 1)
