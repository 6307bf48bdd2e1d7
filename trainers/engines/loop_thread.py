"""An asyncio loop in a thread, for code that is not asynchronous itself."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

__all__ = ["LoopThread"]

Result = TypeVar("Result")

_PATIENCE_S = 5.0


class LoopThread:
    """Runs coroutines side by side; the thread starts with the first, and never keeps the interpreter from ending.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Start a coroutine; the future's `cancel` stops it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, run `last`, and end the thread; safe to call twice."""
        if self._loop is None or self._thread is None or self._loop.is_closed():
            last.close()
            return
        wait([self.run(_end_all(last))], timeout=_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all(last: Coroutine[Any, Any, None]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last
