"""An engine without a model: completions come from a function. The fake at the GPU edge in tests."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from trainers.engines.base import Completion, FinishReason, Request
from trainers.engines.request_checks import check_requests

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ScriptedEngine"]


class ScriptedEngine:
    """Completions from a callable, in the order of submission; see `base.Engine` for the contract.

    Args:
        script: (prompt_ids, seed) -> token ids of the completion.
        eos_token_ids: Ids that end a completion; what the script gives behind one is cut off.
        batch_size: Most completions one poll gives back; None gives all.
        max_context: Most tokens of prompt and completion together.
        adapters: Names that requests may ask for; the script does not see them.
        version: Policy version reported before the first sync.
    """

    def __init__(
        self,
        script: Callable[[tuple[int, ...], int], Sequence[int]],
        *,
        eos_token_ids: Sequence[int] = (),
        batch_size: int | None = None,
        max_context: int = 2**20,
        adapters: Sequence[str] = (),
        version: int = 0,
    ) -> None:
        self.version = version
        """Version that completions report."""
        self.synced: list[tuple[str | None, int]] = []
        """(adapter, version) of every sync so far."""
        self._script = script
        self._eos_token_ids = frozenset(eos_token_ids)
        self._batch_size = batch_size
        self._max_context = max_context
        self._adapters = tuple(adapters)
        self._waiting: dict[str, tuple[Request, float]] = {}
        self._ended: list[Completion] = []
        self._is_closed = False

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; all or, on an error, none of them.

        Raises:
            ValueError: If a request cannot be served; the message names it.
            RuntimeError: If the engine is closed.
        """
        if self._is_closed:
            msg = "submit on a closed engine; expected an open one: build a new ScriptedEngine"
            raise RuntimeError(msg)
        in_flight = self._waiting.keys() | {completion.request_id for completion in self._ended}
        accepted = check_requests(
            requests, in_flight=in_flight, max_context=self._max_context, vocabulary=None, adapters=self._adapters
        )
        self._waiting |= {request.request_id: (request, time.monotonic()) for request in accepted}

    def poll(self) -> list[Completion]:
        """The next completions; [] when nothing is in flight."""
        for request_id in list(self._waiting)[: self._batch_size]:
            request, submitted = self._waiting.pop(request_id)
            late = request.deadline_s is not None and time.monotonic() >= submitted + request.deadline_s
            tokens, reason = ((), "deadline") if late else self._run(request)
            self._end(request_id, submitted, tokens, reason)
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests; each comes back once as `cancelled`. Unknown ids are ignored."""
        for request_id in request_ids:
            if request_id in self._waiting:
                _, submitted = self._waiting.pop(request_id)
                self._end(request_id, submitted, (), "cancelled")

    def sync(self, weights: "Mapping[str, Tensor]", version: int, adapter: str | None = None) -> None:
        """Take the version; the weights are ignored."""
        if adapter is not None and adapter not in self._adapters:
            msg = f"unknown adapter {adapter!r}; expected one of {self._adapters!r}: name it in adapters="
            raise ValueError(msg)
        self.synced.append((adapter, version))
        self.version = version

    def close(self) -> None:
        """Forget all requests; safe to call twice."""
        self._is_closed = True
        self._waiting.clear()
        self._ended.clear()

    def _run(self, request: Request) -> tuple[tuple[int, ...], FinishReason]:
        limit = min(request.sampling.max_tokens, self._max_context - len(request.prompt_ids))
        tokens: list[int] = []
        for token in self._script(request.prompt_ids, request.seed):
            tokens.append(token)
            if token in self._eos_token_ids:
                return tuple(tokens), "stop"
            if len(tokens) == limit:
                return tuple(tokens), "length"
        return tuple(tokens), "stop"

    def _end(self, request_id: str, submitted: float, tokens: tuple[int, ...], reason: FinishReason) -> None:
        seconds = time.monotonic() - submitted
        self._ended.append(Completion(request_id, tokens, (0.0,) * len(tokens), reason, self.version, seconds))
