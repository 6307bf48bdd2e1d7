"""Rollouts of one iteration after the other; with a lag of one, the next are generated while the learner works."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Collection"]

Batch = TypeVar("Batch")


@dataclass
class _Running(Generic[Batch]):
    iteration: int
    thread: threading.Thread
    batch: Batch | None = None
    error: BaseException | None = None


class Collection(Generic[Batch]):
    """Gives batches in order, each made by `collect(iteration)`.

    Args:
        collect: Makes the batch of an iteration; called in a thread for batches that are made ahead.
        lag: Batches that may be made ahead: 0 makes each when it is asked for, 1 makes the next one meanwhile.
    """

    def __init__(self, collect: Callable[[int], Batch], *, lag: int) -> None:
        self._collect = collect
        self._lag = lag
        self._running: _Running[Batch] | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether a batch has been started that was not taken yet."""
        return self._running is not None

    def take(self, iteration: int) -> Batch:
        """The batch of an iteration, as soon as it is there.

        Raises:
            Exception: Whatever `collect` raised.
        """
        running, self._running = self._running, None
        if running is None:
            return self._collect(iteration)
        assert running.iteration == iteration
        running.thread.join()
        if running.error is not None:
            raise running.error
        assert running.batch is not None
        return running.batch

    def start(self, iteration: int) -> None:
        """Begin the batch of the next iteration in a thread; nothing without a lag."""
        if not self._lag:
            return
        assert self._running is None
        thread = threading.Thread(target=self._work, args=(iteration,), name="rollouts", daemon=True)
        self._running = _Running(iteration, thread)
        thread.start()

    def settle(self) -> None:
        """Wait until nothing is generated any more, so that engines can take weights or answer an evaluation."""
        if self._running is not None:
            self._running.thread.join()

    def _work(self, iteration: int) -> None:
        running = self._running
        assert running is not None
        try:
            running.batch = self._collect(iteration)
        except BaseException as error:  # noqa: BLE001  # comes out where the batch is taken
            running.error = error
