"""What the engine knows about each request that is being sampled, in arrays with one slot a request."""

import time

import numpy as np

from trainers.engines.base import Completion, FinishReason, Request
from trainers.engines.sampling import Draw, Floats, Ints, Seeds, stream, uniforms

__all__ = ["RowTable"]


class RowTable:
    """Slots of the requests in flight, so that one decode step costs a few array operations and no loop.

    Args:
        num_slots: Most requests at a time.
        vocabulary: Number of token ids.
        eos_token_ids: Ids that end a completion.
    """

    def __init__(self, *, num_slots: int, vocabulary: int, eos_token_ids: tuple[int, ...]) -> None:
        self.vocabulary = vocabulary
        """Number of token ids."""
        self.prompts: list[Ints] = [np.zeros(0, dtype=np.int64)] * num_slots
        """Prompt token ids by slot."""
        self.temperature: Floats = np.zeros(num_slots)
        """By slot, as are the next ones."""
        self.top_p: Floats = np.ones(num_slots)
        """See `Sampling`."""
        self.top_k: Ints = np.zeros(num_slots, dtype=np.int64)
        """See `Sampling`."""
        self.deadline: Floats = np.full(num_slots, np.inf)
        """Monotonic time after which the completion is given back."""
        self._requests: list[tuple[Request, float] | None] = [None] * num_slots
        self._count: Ints = np.zeros(num_slots, dtype=np.int64)
        self._limit: Ints = np.zeros(num_slots, dtype=np.int64)
        self._tokens: Ints = np.zeros((num_slots, 16), dtype=np.int64)
        self._logprobs: Floats = np.zeros((num_slots, 16))
        self._streams: Seeds = np.zeros(num_slots, dtype=np.uint64)
        self._is_eos = np.zeros(vocabulary, dtype=np.bool_)
        self._is_eos[list(eos_token_ids)] = True
        self._free = list(range(num_slots))[::-1]

    @property
    def num_free(self) -> int:
        """Slots without a request."""
        return len(self._free)

    def add(self, request: Request, *, submitted: float, limit: int) -> int:
        """Slot of a request that starts now.

        Args:
            request: The request.
            submitted: Monotonic time of its submit.
            limit: Most tokens it can have.
        """
        if limit > self._tokens.shape[1]:
            wider = [(0, 0), (0, max(limit, 2 * self._tokens.shape[1]) - self._tokens.shape[1])]
            self._tokens, self._logprobs = np.pad(self._tokens, wider), np.pad(self._logprobs, wider)
        slot = self._free.pop()
        sampling = request.sampling
        self._requests[slot] = (request, submitted)
        self.prompts[slot] = np.asarray(request.prompt_ids, dtype=np.int64)
        self.temperature[slot], self.top_p[slot] = sampling.temperature, sampling.top_p
        self.top_k[slot] = sampling.top_k
        self.deadline[slot] = np.inf if request.deadline_s is None else submitted + request.deadline_s
        self._count[slot], self._limit[slot] = 0, limit
        self._streams[slot] = stream(request.seed)
        return slot

    def request_id(self, slot: int) -> str:
        """Id of the request in a slot."""
        held = self._requests[slot]
        assert held is not None, "empty slot"
        return held[0].request_id

    def next_uniform(self, slots: Ints) -> Floats:
        """[B] the random number of each slot's next token."""
        return uniforms(self._streams[slots], self._count[slots])

    def record(self, slots: Ints, drawn: Draw) -> dict[int, FinishReason]:
        """Append one token to each slot; the slots that ended by it, with the reason.

        A row whose logits were not numbers keeps the tokens it had and fails.
        """
        count = self._count[slots]
        self._tokens[slots, count] = drawn.token_ids
        self._logprobs[slots, count] = drawn.logprobs
        broken = ~np.isfinite(drawn.logprobs)
        count = count + ~broken
        self._count[slots] = count
        stopped = self._is_eos[drawn.token_ids]
        ended: dict[int, FinishReason] = {}
        for index in (broken | stopped | (count >= self._limit[slots])).nonzero()[0]:
            reason: FinishReason = "failed" if broken[index] else "stop" if stopped[index] else "length"
            ended[int(slots[index])] = reason
        return ended

    def finish(self, slot: int, reason: FinishReason, version: int) -> Completion:
        """Free a slot and give its completion back."""
        held = self._requests[slot]
        assert held is not None, "empty slot"
        self._requests[slot] = None
        self._free.append(slot)
        self.deadline[slot] = np.inf
        request, submitted = held
        count = int(self._count[slot])
        error = None
        if reason == "failed":
            error = f"the logits after {count} tokens are not finite numbers: look for NaN in the weights"
        return Completion(
            request_id=request.request_id,
            token_ids=tuple(self._tokens[slot, :count].tolist()),
            logprobs=tuple(self._logprobs[slot, :count].tolist()),
            finish_reason=reason,
            policy_version=version,
            seconds=time.monotonic() - submitted,
            error=error,
        )
