"""Environment steps at the side of generation: a slow grader or retriever holds up its own episode only."""

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

__all__ = ["EnvSteps"]

Key = TypeVar("Key")


class EnvSteps(Generic[Key]):
    """Runs steps in threads, or at once and in order when there are none.

    Args:
        num_threads: Steps that may wait at the same time; 0 runs each where it is submitted.
    """

    def __init__(self, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="env") if num_threads else None
        self._done: queue.SimpleQueue[tuple[Key, Future[None] | None]] = queue.SimpleQueue()
        self.num_running = 0
        """Steps that were submitted and not yet given back by `finished`."""

    def submit(self, key: Key, step: Callable[[], None]) -> None:
        """Run a step; an exception comes out here or in `finished`."""
        self.num_running += 1
        if self._threads is None:
            step()
            self._done.put((key, None))
        else:
            self._threads.submit(step).add_done_callback(lambda future: self._done.put((key, future)))

    def finished(self, *, wait: bool) -> list[Key]:
        """The keys of steps that ended since the last call, in the order in which they did.

        Args:
            wait: Whether to wait for one when none has ended.
        """
        keys: list[Key] = []
        while self.num_running and (not self._done.empty() or (wait and not keys)):
            key, future = self._done.get()
            self.num_running -= 1
            if future is not None:
                future.result()
            keys.append(key)
        return keys

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
