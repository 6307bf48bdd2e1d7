"""What every engine refuses at `submit`, with the same words."""

import math
from collections.abc import Collection, Iterable

from trainers.engines.base import Request, Sampling

__all__ = ["check_requests", "check_sampling"]


def check_requests(
    requests: Iterable[Request],
    *,
    in_flight: Collection[str],
    max_context: int,
    vocabulary: int | None,
    adapters: Collection[str],
) -> list[Request]:
    """The requests as a list, if every one of them can be served.

    Args:
        requests: What is submitted together.
        in_flight: Ids that are taken.
        max_context: Most tokens of prompt and completion together.
        vocabulary: Number of token ids; None does not check them.
        adapters: Names of the adapters there are.

    Raises:
        ValueError: If one cannot; the message names it and the limit.
    """
    accepted: list[Request] = []
    taken = set(in_flight)
    for request in requests:
        name = f"request {request.request_id!r}"
        if request.request_id in taken:
            msg = f"{name} is already in flight; expected a new id: wait for its completion or number the requests"
            raise ValueError(msg)
        _check_prompt(request.prompt_ids, name, max_context, vocabulary)
        if request.adapter is not None and request.adapter not in adapters:
            msg = f"{name} wants adapter {request.adapter!r}; expected None or one of {tuple(adapters)!r}: add it first"
            raise ValueError(msg)
        if not 0 <= request.seed < 2**64:
            msg = f"{name} has seed={request.seed!r}; expected 0 to 2**64 - 1"
            raise ValueError(msg)
        check_sampling(request.sampling, name)
        taken.add(request.request_id)
        accepted.append(request)
    return accepted


def _check_prompt(prompt_ids: tuple[int, ...], name: str, max_context: int, vocabulary: int | None) -> None:
    if not prompt_ids:
        msg = f"{name} has an empty prompt; expected at least one token id: start it with a begin or chat token"
        raise ValueError(msg)
    if len(prompt_ids) >= max_context:
        msg = (
            f"{name} has a prompt of {len(prompt_ids)} tokens; expected fewer than the context of {max_context}: "
            "shorten the prompt or raise max_context"
        )
        raise ValueError(msg)
    if vocabulary is not None and (min(prompt_ids) < 0 or max(prompt_ids) >= vocabulary):
        wrong = next(token for token in prompt_ids if not 0 <= token < vocabulary)
        msg = f"{name} holds token id {wrong!r}; expected 0 to {vocabulary - 1}: use the model's own tokenizer"
        raise ValueError(msg)


def check_sampling(sampling: Sampling, owner: str) -> None:
    """Refuse sampling settings that mean nothing.

    Args:
        sampling: The settings.
        owner: What the message starts with, such as `request 'a'`.

    Raises:
        ValueError: If a setting is out of range.
    """
    if sampling.max_tokens < 1:
        msg = f"{owner} has max_tokens={sampling.max_tokens!r}; expected 1 or more"
        raise ValueError(msg)
    if not (sampling.temperature >= 0 and math.isfinite(sampling.temperature)):
        msg = f"{owner} has temperature={sampling.temperature!r}; expected 0 (greedy) or a positive number"
        raise ValueError(msg)
    if not 0 < sampling.top_p <= 1:
        msg = f"{owner} has top_p={sampling.top_p!r}; expected a number in (0, 1], 1 keeps all tokens"
        raise ValueError(msg)
    if sampling.top_k < 0:
        msg = f"{owner} has top_k={sampling.top_k!r}; expected 0 (keeps all tokens) or more"
        raise ValueError(msg)
