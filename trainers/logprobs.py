"""Logprobs of completions under a model, without a [rows, tokens, vocabulary] tensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["TokenScores", "score_completions"]

_CHUNK_ELEMENTS = 32 * 2**20
"""Largest logits tensor, in elements (tokens x vocabulary), that is held at once."""


@dataclass(frozen=True)
class TokenScores:
    """Scores of all completion tokens of some rows, row after row."""

    logprobs: Tensor
    """[N] float32, natural log; differentiable."""
    entropy: Tensor | None
    """[N] float32, nats, of the distribution each token was drawn from; None when not asked for."""


def score_completions(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    pad_token_id: int = 0,
    with_entropy: bool = False,
) -> TokenScores:
    """Logprobs of each completion token given its prompt and the tokens before it.

    Rows are padded on the right, where causal attention cannot see; logits are computed at completion positions only,
    and in chunks when they would be large.

    Args:
        model: A transformers causal language model.
        prompts: B prompts, each of at least one token.
        completions: B completions, each of at least one token.
        temperature: Temperature the tokens were sampled at; > 0.
        pad_token_id: Any token id.
        with_entropy: Also compute the entropy.

    Returns:
        Scores of N tokens, N the number of completion tokens in all.
    """
    device = next(model.parameters()).device
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width = max(map(len, rows)) - 1  # the last token of a row is never read, only predicted
    padded = torch.tensor([row[:width] + [pad_token_id] * (width - len(row)) for row in rows], device=device)
    at_row = [index for index, completion in enumerate(completions) for _ in completion]
    at_column = [
        len(prompt) - 1 + offset
        for prompt, completion in zip(prompts, completions, strict=True)
        for offset in range(len(completion))
    ]
    targets = torch.tensor([token for completion in completions for token in completion], device=device)
    hidden = model.get_decoder()(input_ids=padded, use_cache=False)[0]
    hidden = hidden[torch.tensor(at_row, device=device), torch.tensor(at_column, device=device)]
    head = model.get_output_embeddings()
    chunk = max(1, _CHUNK_ELEMENTS // head.weight.shape[0])
    if len(targets) <= chunk:
        return TokenScores(*_scores(hidden, targets, head, temperature, with_entropy))
    parts = [
        checkpoint(_scores, h, t, head, temperature, with_entropy, use_reentrant=False)
        for h, t in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    ]
    entropy = torch.cat([part[1] for part in parts]) if with_entropy else None
    return TokenScores(torch.cat([part[0] for part in parts]), entropy)


def _scores(
    hidden: Tensor, targets: Tensor, head: Any, temperature: float, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    logits = head(hidden).float()
    if temperature != 1.0:
        logits = logits / temperature
    log_all = torch.log_softmax(logits, dim=-1)
    logprobs = log_all.gather(-1, targets[:, None]).squeeze(-1)
    entropy = -(log_all.exp() * log_all).sum(-1) if with_entropy else None
    return logprobs, entropy
