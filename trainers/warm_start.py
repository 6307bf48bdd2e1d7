"""Warm start: behaviour cloning of scripted experts, then, where asked for, down to a mediocre level on purpose."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from adapters.llm import ChatCodec
from trainers.config import WarmStartSettings
from trainers.demonstrations import Demonstration
from trainers.logprobs import score_completions

__all__ = ["TokenPair", "clone", "spoil", "tokenise"]

TokenPair = tuple[tuple[int, ...], tuple[int, ...]]
"""Prompt ids and completion ids of one demonstration."""

Progress = Callable[[int, float], None]
"""Called with the step and its loss."""

_CHECK_EVERY = 10


def tokenise(demonstrations: Sequence[Demonstration], codec: ChatCodec) -> list[TokenPair]:
    """Token ids of each demonstration, in order."""
    return [(codec.encode(shown.messages), codec.encode_completion(shown.text)) for shown in demonstrations]


def clone(
    model: Any, pairs: Sequence[TokenPair], settings: WarmStartSettings, *, seed: int, on_step: Progress | None = None
) -> float:
    """Supervised training on demonstrations; returns the mean loss of the last tenth of the steps, in nats a token.

    AdamW with 50 warm-up steps and a linear decay over the last 30 %.

    Args:
        model: A transformers causal language model; trained in place.
        pairs: Demonstrations as token ids.
        settings: Steps, batch size and learning rate.
        seed: Seed of the order.
        on_step: Called after each step.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    batches = _batches(pairs, settings.batch_size, seed)
    losses: list[float] = []
    for step in range(settings.steps):
        decay = min(1.0, (settings.steps - step) / max(1.0, 0.3 * settings.steps))
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (step + 1) / 50) * decay
        losses.append(_step(model, optimizer, next(batches)))
        if on_step is not None:
            on_step(step + 1, losses[-1])
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail) if tail else float("nan")


def spoil(
    model: Any,
    pairs: Sequence[TokenPair],
    settings: WarmStartSettings,
    measure: Callable[[], float],
    *,
    seed: int,
    on_step: Progress | None = None,
) -> float:
    """Train on a mediocre expert until measured success falls below `spoil_until`; returns that success.

    A fixed number of steps lands anywhere between 2 % and 59 %, so the measurement decides when to stop.

    Args:
        model: A transformers causal language model; trained in place.
        pairs: Mediocre demonstrations as token ids.
        settings: Where to stop.
        measure: Success of the team now, in [0, 1].
        seed: Seed of the order.
        on_step: Called after each measurement, with the success.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.spoil_lr, weight_decay=0.01, fused=True)
    batches = _batches(pairs, settings.batch_size, seed)
    success = measure()
    for step in range(1, settings.max_spoil_steps + 1):
        if success < settings.spoil_until:
            break
        _step(model, optimizer, next(batches))
        if step % _CHECK_EVERY == 0:
            success = measure()
            if on_step is not None:
                on_step(step, success)
    return success


def _step(model: Any, optimizer: torch.optim.Optimizer, batch: Sequence[TokenPair]) -> float:
    model.train()
    scores = score_completions(model, [prompt for prompt, _ in batch], [completion for _, completion in batch])
    loss = -scores.logprobs.mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _batches(pairs: Sequence[TokenPair], batch_size: int, seed: int) -> Iterator[list[TokenPair]]:
    """Endless shuffled batches; not sorted by length, which would fill a batch with one kind of turn."""
    rng = random.Random(seed)
    size = min(batch_size, len(pairs))
    while True:
        order = rng.sample(range(len(pairs)), len(pairs))
        for start in range(0, len(order) - size + 1, size):
            yield [pairs[index] for index in order[start : start + size]]
