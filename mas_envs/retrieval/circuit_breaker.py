"""`CircuitBreaker`: after several failures in a row, nothing is asked of a server for a while."""

import threading
import time

__all__ = ["CircuitBreaker"]


class CircuitBreaker:
    """Says whether a server may be asked. Shared by threads.

    Args:
        trip_after: Failures in a row after which nobody may ask.
        cool_down_s: Seconds until one caller may try again; the others go on waiting for its result.
    """

    def __init__(self, trip_after: int, cool_down_s: float) -> None:
        self._trip_after, self._cool_down_s = trip_after, cool_down_s
        self._failures = 0
        self._closed_at: float | None = None
        self._lock = threading.Lock()

    def allows(self) -> bool:
        """Whether to ask now; of the callers after a cool-down only the first may."""
        with self._lock:
            if self._closed_at is None:
                return True
            if time.monotonic() - self._closed_at < self._cool_down_s:
                return False
            self._closed_at = time.monotonic()
            return True

    def succeeded(self) -> None:
        """The server answered: everybody may ask."""
        with self._lock:
            self._failures, self._closed_at = 0, None

    def failed(self) -> None:
        """The server did not answer."""
        with self._lock:
            self._failures += 1
            if self._failures >= self._trip_after:
                self._closed_at = time.monotonic()
