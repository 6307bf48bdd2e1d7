"""What a chat endpoint sent back, which may be anything: text to act on, or a failure in words."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from mas_envs.errors import MasEnvsError

__all__ = ["ChatAnswer", "EndpointError", "read_answer", "refusal", "retry_after_s"]

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_MOST_TOKENS = 1_000_000_000
_ADVICE = {
    400: "a prompt that is too long needs a lower sampling.max_tokens or a model with more context; a field that the "
    "endpoint does not take is left out by endpoint.extra_body: {FIELD: null}",
    401: "put a valid key into the environment variable that endpoint.api_key_env names",
    404: "expected a model that it serves (GET /models lists them), at an address that ends in /v1",
}
_ADVICE |= {413: _ADVICE[400], 422: _ADVICE[400], 403: _ADVICE[401]}


class EndpointError(MasEnvsError, RuntimeError):
    """A request that got no usable answer."""

    def __init__(
        self, message: str, *, may_pass: bool = False, pause_s: float | None = None, is_down: bool = False
    ) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether to ask again."""
        self.pause_s = pause_s
        """Seconds the server wants to be left alone; None where it did not say."""
        self.is_down = is_down
        """Whether nobody was there to answer."""


@dataclass(frozen=True)
class ChatAnswer:
    """A completion as text."""

    text: str
    """The assistant's message; encodes as UTF-8."""
    finish_reason: Literal["stop", "length"]
    """Whether it ended by itself or was cut."""
    num_prompt_tokens: int
    """As the endpoint counts; 0 where it does not."""
    num_completion_tokens: int
    """The same, thoughts included where the endpoint bills them."""
    has_usage: bool
    """Whether the endpoint counted."""


def read_answer(content: bytes) -> ChatAnswer:
    """The first choice of a chat completion.

    Raises:
        EndpointError: If it is none, or holds no text.
    """
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise EndpointError(f"sent {_excerpt(content)}, which is no chat completion; check the address") from error
    if isinstance(raw, dict) and raw.get("error") and not raw.get("choices"):
        raise EndpointError(f"sent an error instead of a completion: {_excerpt(content)}")
    try:
        choice = raw["choices"][0]
        message, reason = dict(choice["message"]), choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EndpointError(f"sent {_excerpt(content)}, which is no chat completion; check the address") from error
    text = message.get("content")
    if not isinstance(text, str) or reason == "content_filter":
        raise EndpointError(_without_text(message, reason))
    prompt, completion = (_count(raw.get("usage"), name) for name in ("prompt_tokens", "completion_tokens"))
    return ChatAnswer(
        text=text.encode("utf-8", "replace").decode("utf-8"),  # JSON can hold half a surrogate pair, a file cannot
        finish_reason="length" if reason == "length" else "stop",
        num_prompt_tokens=prompt or 0,
        num_completion_tokens=completion or 0,
        has_usage=prompt is not None and completion is not None,
    )


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> EndpointError:
    """The error for an answer whose status is not 200."""
    said = f"answered {status} ({_excerpt(content)})"
    if 300 <= status < 400:
        return EndpointError(f"{said}; it redirects to {headers.get('location', 'nowhere')!r:.200}: use that address")
    if status not in _RETRIED or _error_field(content, "code") == "insufficient_quota":
        advice = _ADVICE.get(status)
        return EndpointError(f"{said}; {advice}" if advice else said)
    pause_s = retry_after_s(headers, time.time())
    wish = "" if pause_s is None else f" and wants a pause of {pause_s:.3g} s"
    return EndpointError(f"{said}{wish}", may_pass=True, pause_s=pause_s)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server wants to be left alone; None where it does not say, or not readably.

    >>> retry_after_s({"retry-after": "7"}, now=0.0), retry_after_s({"retry-after": "soon"}, now=0.0)
    (7.0, None)

    Args:
        headers: Of the answer, by lower-case name: `retry-after-ms`, or `retry-after` in seconds or as a date.
        now: Seconds since 1970, which a date is measured against.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0.0 else None
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _without_text(message: Mapping[str, Any], reason: object) -> str:
    """Why a message cannot be an action."""
    if reason == "content_filter":
        return "stopped at its content filter; expected text: use a model or a task that it lets pass"
    if message.get("tool_calls"):
        return "called a tool; expected text: serve the model without tools"
    if message.get("refusal"):
        return f"declined ({str(message['refusal'])[:160]!r}); expected text"
    if reason == "length":
        return "wrote no text within sampling.max_tokens; expected text: raise it, thoughts may have used it up"
    return f"sent the content {str(message.get('content'))[:80]!r}; expected text"


def _count(usage: object, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= _MOST_TOKENS else None


def _error_field(content: bytes, name: str) -> object:
    """A field of `{"error": {...}}`, as OpenAI, vLLM and llama.cpp send it; None where there is none."""
    try:
        error = json.loads(content)["error"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return error.get(name) if isinstance(error, dict) else error if name == "message" else None


def _excerpt(content: bytes) -> str:
    """The error's own words, else the start of whatever it is."""
    message = _error_field(content, "message")
    if isinstance(message, str) and message:
        return repr(message[:240])
    return repr(" ".join(content[:1000].decode("utf-8", "replace").split())[:160])
