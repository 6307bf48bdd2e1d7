"""A time limit for code that is not ours and may never return."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["TimeUp", "time_limit"]


class TimeUp(BaseException):
    """The time is up; no `Exception`, so that third-party code that catches everything does not swallow it."""


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Interrupts its block after `limit_s` seconds; outside the main thread, or without SIGALRM, it does nothing.

    Raises:
        TimeUp: In the block, when the time is up.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise TimeUp(f"no end after {limit_s:g} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining)
        signal.signal(signal.SIGALRM, previous)
