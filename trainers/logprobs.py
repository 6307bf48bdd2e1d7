"""Logprobs of completions under a model, without a [rows, tokens, vocabulary] tensor."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

__all__ = ["TokenScores", "score_completions", "sharing_pays"]

_CHUNK_ELEMENTS = 32 * 2**20
"""Largest logits tensor, in elements (tokens x vocabulary), that is held at once."""
_FEWEST_TOKENS_TO_SHARE = 4096
_SHARED_FRAC = 0.75


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
    and in chunks when they would be large. A prompt of many rows is computed once where that pays.

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
    targets = torch.tensor([token for completion in completions for token in completion], device=device)
    if not _recomputes(model) and sharing_pays(prompts, completions):
        hidden = _hidden_after_shared_prompts(model, prompts, completions, pad_token_id, device)
    else:
        hidden = _hidden_row_by_row(model, prompts, completions, pad_token_id, device)
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


def _recomputes(model: Any) -> bool:
    """Whether layers are computed again in the backward pass, which leaves them no cache of keys and values."""
    is_on = getattr(model, "is_activation_checkpointing", None)
    if is_on is None:  # transformers before it had that name
        is_on = getattr(model, "is_gradient_checkpointing", False)
    return bool(is_on) and model.training


def sharing_pays(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> bool:
    """Whether to compute each distinct prompt once: two passes instead of one have to save many tokens."""
    distinct = set(map(tuple, prompts))
    longest_prompt, longest_completion = max(map(len, prompts)), max(map(len, completions))
    plain = len(prompts) * max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
    shared = len(distinct) * longest_prompt + len(prompts) * longest_completion
    return plain >= _FEWEST_TOKENS_TO_SHARE and shared <= _SHARED_FRAC * plain


def _hidden_row_by_row(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    pad_token_id: int,
    device: torch.device,
) -> Tensor:
    """[N, H] states that predict each completion token."""
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width = max(map(len, rows)) - 1  # the last token of a row is never read, only predicted
    padded = _padded([row[:width] for row in rows], pad_token_id, device)
    at_row = [index for index, completion in enumerate(completions) for _ in completion]
    at_column = [
        len(prompt) - 1 + offset
        for prompt, completion in zip(prompts, completions, strict=True)
        for offset in range(len(completion))
    ]
    hidden: Tensor = model.get_decoder()(input_ids=padded, use_cache=False)[0]
    return hidden[torch.tensor(at_row, device=device), torch.tensor(at_column, device=device)]


def _hidden_after_shared_prompts(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    pad_token_id: int,
    device: torch.device,
) -> Tensor:
    """The same states, each distinct prompt computed once; gradients of its rows add up in its keys and values."""
    places = {prompt: index for index, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
    lengths = torch.tensor([len(prompt) for prompt in places], device=device)
    decoder = model.get_decoder()
    cache = DynamicCache()
    parameters = inspect.signature(decoder.forward).parameters
    keyword = "cache" if "cache" in parameters else "past_key_values"  # before transformers 5.24
    before = decoder(input_ids=_padded(list(places), pad_token_id, device), use_cache=True, **{keyword: cache})[0]
    row = torch.tensor([places[tuple(prompt)] for prompt in prompts], device=device)
    cache.batch_select_indices(row)
    width = max(1, max(map(len, completions)) - 1)  # the last token is never read
    offset = torch.arange(width, device=device)
    at_prompt = torch.arange(before.shape[1], device=device) < lengths[row][:, None]
    mask = torch.cat([at_prompt, torch.ones(len(row), width, dtype=torch.bool, device=device)], dim=1)
    after = decoder(
        input_ids=_padded([completion[:width] for completion in completions], pad_token_id, device),
        attention_mask=mask,
        position_ids=lengths[row][:, None] + offset,
        use_cache=True,
        **{keyword: cache},
    )[0]
    first = before[row, lengths[row] - 1][:, None]
    states = torch.cat([first, after], dim=1)
    is_read = (
        torch.arange(states.shape[1], device=device) < torch.tensor(list(map(len, completions)), device=device)[:, None]
    )
    return states[is_read]


def _padded(rows: Sequence[Sequence[int]], pad_token_id: int, device: torch.device) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad_token_id] * (width - len(row))] for row in rows], device=device)


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
