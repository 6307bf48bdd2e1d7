"""Ctrl-C as a request: the first asks for a stop at a good moment, the second stops at once."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopRequest"]


class StopRequest:
    """Inside the `with` block, SIGINT sets `is_set`; a second SIGINT raises KeyboardInterrupt.

    Outside the main thread signals cannot be caught, and `ask` is the only way to set it.

    Args:
        on_asked: Called at the first Ctrl-C.
    """

    def __init__(self, on_asked: Callable[[], None]) -> None:
        self.is_set = False
        self._on_asked = on_asked
        self._before: Any = None

    def ask(self) -> None:
        """Ask for a stop."""
        self.is_set = True

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.ask()
        self._on_asked()
