"""`SearchBatcher`: searches that arrive at the same time become one call of the retriever."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mas_envs.retrieval.protocol import Passage, Retriever

__all__ = ["SearchBatcher", "TooBusyError"]

Answers = list[list[Passage]]


class TooBusyError(RuntimeError):
    """More queries are waiting than the server holds."""


@dataclass(frozen=True)
class _Waiting:
    """A request that nobody has looked at yet."""

    queries: Sequence[str]
    topk: int
    answers: "asyncio.Future[Answers]"


class SearchBatcher:
    """Collects searches while the retriever is busy, and hands it all of them at once when it is free.

    Nobody waits for company: a search that finds the retriever idle starts at once.

    Args:
        retriever: What searches; called in one thread of its own, one call at a time.
        max_batch: Most queries of one call; a request with more still goes as one.
        max_waiting: Most queries waiting; one more is refused.
        observe: Told the number of queries of every call.
    """

    def __init__(
        self,
        retriever: Retriever,
        *,
        max_batch: int,
        max_waiting: int,
        observe: Callable[[int], None] = lambda num_queries: None,
    ) -> None:
        self._retriever, self._max_batch, self._max_waiting = retriever, max_batch, max_waiting
        self._observe = observe
        self._waiting: deque[_Waiting] = deque()
        self._num_waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._worker: asyncio.Task[None] | None = None

    async def search(self, queries: Sequence[str], topk: int) -> Answers:
        """At most `topk` passages for each query.

        Raises:
            TooBusyError: If too many queries are waiting.
            Exception: What the retriever raised, if the search failed also on its own.
        """
        if self._num_waiting + len(queries) > self._max_waiting and self._waiting:
            raise TooBusyError(f"{self._num_waiting} queries are waiting, the limit is {self._max_waiting}")
        request = _Waiting(queries, topk, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._num_waiting += len(queries)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await request.answers

    @property
    def num_waiting(self) -> int:
        """Queries that no search has begun yet."""
        return self._num_waiting

    def close(self) -> None:
        """Let the running call end and start no other."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _work(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            try:
                answers = await self._call(batch)
            except Exception as error:  # noqa: BLE001  # foreign code; whoever asked is told
                if len(batch) == 1:
                    _settle(batch[0], error)
                else:
                    await self._one_by_one(batch)
            else:
                for request, found in zip(batch, answers, strict=True):
                    _settle(request, found)

    async def _one_by_one(self, batch: Sequence[_Waiting]) -> None:
        """A call failed: the request at fault is told, the others get their answers."""
        for request in batch:
            try:
                _settle(request, (await self._call([request]))[0])
            except Exception as error:  # noqa: BLE001  # foreign code; whoever asked is told
                _settle(request, error)

    async def _call(self, batch: Sequence[_Waiting]) -> list[Answers]:
        queries = [query for request in batch for query in request.queries]
        topk = max(request.topk for request in batch)
        self._observe(len(queries))
        loop = asyncio.get_running_loop()
        found = iter(await loop.run_in_executor(self._thread, self._retriever.search, queries, topk))
        return [[next(found)[: request.topk] for _ in request.queries] for request in batch]

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].queries) <= self._max_batch):
            request = self._waiting.popleft()
            self._num_waiting -= len(request.queries)
            if not request.answers.cancelled():
                batch.append(request)
                size += len(request.queries)
        return batch


def _settle(request: _Waiting, outcome: Answers | Exception) -> None:
    if request.answers.done():  # whoever asked has gone
        return
    if isinstance(outcome, Exception):
        request.answers.set_exception(outcome)
    else:
        request.answers.set_result(outcome)
