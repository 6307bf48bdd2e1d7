"""POST requests to servers that may be down, slow or hostile: bounded answers, deadlines, pauses before another try."""

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

__all__ = ["Answer", "AnswerTooLongError", "PassingTroubleError", "is_loopback", "post", "until_answered"]

Result = TypeVar("Result")

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 20.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class PassingTroubleError(Exception):
    """A failure that may go away when asked again."""

    def __init__(self, message: str, *, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.pause_s = pause_s
        """Seconds that the server asks to wait; None when it does not say."""


class AnswerTooLongError(Exception):
    """An answer over the limit; it was not read to its end."""


@dataclass(frozen=True)
class Answer:
    """What a server sent back."""

    status: int
    """HTTP status."""
    content: bytes
    """The body."""

    @property
    def excerpt(self) -> str:
        """The beginning of the body as text, for messages."""
        return self.content[:160].decode("utf-8", "replace")


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine, where a proxy of the environment knows nothing.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("https://example.com")
    (True, False)
    """
    return urlsplit(url).hostname in _LOOPBACK


def post(client: Any, url: str, body: bytes, *, until: float, attempt_s: float, most_bytes: int) -> Answer:
    """One request and its answer, whatever its status, but for the statuses that may pass.

    Args:
        client: An `httpx.Client`.
        url: Where to.
        body: JSON.
        until: When the answer must be there, `time.monotonic()` seconds.
        attempt_s: Seconds that this attempt may take at most.
        most_bytes: Longest answer.

    Raises:
        PassingTroubleError: If there is no answer in time, the server cannot be reached, or it is overloaded.
        AnswerTooLongError: If the answer is longer.
    """
    import httpx  # comes with an extra, as the client did

    seconds = max(0.01, min(until - time.monotonic(), attempt_s))
    stop = time.monotonic() + seconds
    headers = {"Content-Type": "application/json"}
    try:
        with client.stream("POST", url, content=body, headers=headers, timeout=seconds) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > most_bytes:
                    raise AnswerTooLongError(f"the answer is longer than {most_bytes} bytes")
                if time.monotonic() > stop:  # a server that trickles keeps no read timeout
                    raise PassingTroubleError(f"no answer within {seconds:.3g} s")
    except httpx.TimeoutException as error:
        raise PassingTroubleError(f"no answer within {seconds:.3g} s ({type(error).__name__})") from error
    except httpx.HTTPError as error:
        raise PassingTroubleError(f"cannot be reached ({type(error).__name__}: {error})") from error
    answer = Answer(response.status_code, bytes(content))
    if answer.status in _PASSING:
        raise PassingTroubleError(
            f"answered {answer.status} ({answer.excerpt})", pause_s=_retry_after(response.headers)
        )
    return answer


def until_answered(attempt: Callable[[], Result], *, until: float, most_retries: int | None = None) -> Result:
    """The result of the first attempt without passing trouble.

    Pauses double and are drawn at random, unless the server says how long to wait.

    Args:
        attempt: Asks once.
        until: No attempt begins later, `time.monotonic()` seconds.
        most_retries: Attempts after the first; None is no limit but the time.

    Raises:
        PassingTroubleError: What the last attempt raised.
    """
    pause, retries = _FIRST_PAUSE_S, 0
    while True:
        try:
            return attempt()
        except PassingTroubleError as error:
            pause = min(2.0 * pause, _LONGEST_PAUSE_S)
            wait = pause * random.uniform(0.5, 1.0) if error.pause_s is None else error.pause_s
            if retries == most_retries or time.monotonic() + wait >= until:
                raise
            time.sleep(wait)
            retries += 1


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return min(seconds, _LONGEST_PAUSE_S) if math.isfinite(seconds) and seconds >= 0.0 else None
