"""`RemotePolicy`: a team-mate behind an OpenAI-compatible endpoint; it acts, costs tokens, and is never trained."""

import json
import os
import queue
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from mas_envs.errors import MasEnvsError, MissingExtraError
from trainers.config import EndpointSettings, PolicySettings
from trainers.engines.base import FinishReason
from trainers.overrides import SettingsError
from trainers.rollout import TurnReply, TurnRequest

__all__ = ["RemotePolicy", "check_endpoints"]

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_BYTES = 8 << 20
_LONGEST_PAUSE_S = 20.0


class _AnswerError(MasEnvsError, RuntimeError):
    """A request that got no usable answer; `may_pass` says whether to ask again."""

    def __init__(self, message: str, *, may_pass: bool, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.may_pass, self.pause_s = may_pass, pause_s


class RemotePolicy:
    """Answers turns by `POST {url}/chat/completions`; several requests wait side by side.

    A request that fails for good loses its episode and no other. Refusals (401, 404, a context that is too long) are
    not asked again; rate limits and servers in trouble are, after a pause that doubles, or that the server names.

    Args:
        policy_id: Its name, for messages.
        endpoint: Where it is.
        sampling: Token limit, temperature and top_p; `top_k` is not part of the protocol.

    Raises:
        MissingExtraError: Without httpx.
        SettingsError: If the environment variable with the key is not set.
    """

    def __init__(self, policy_id: str, endpoint: EndpointSettings, settings: PolicySettings) -> None:
        self.policy_id, self.version = policy_id, 0
        self._endpoint, self._settings = endpoint, settings
        self._temperature = settings.sampling.temperature
        self._client = _client(policy_id, endpoint)
        self._threads = ThreadPoolExecutor(endpoint.max_concurrency, thread_name_prefix=f"remote-{policy_id}")
        self._answered: queue.SimpleQueue[TurnReply] = queue.SimpleQueue()
        self._in_flight = 0

    @property
    def num_in_flight(self) -> int:
        """Requests that were submitted and not yet given back."""
        return self._in_flight

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        """Send requests; returns at once."""
        for request in requests:
            self._in_flight += 1
            self._threads.submit(self._answer, request)

    def poll(self) -> list[TurnReply]:
        """What was answered since the last poll; waits until there is something."""
        replies = [self._answered.get()] if self._in_flight else []
        self._in_flight -= len(replies)
        return [*replies, *self.arrived()]

    def arrived(self) -> list[TurnReply]:
        """What was answered since the last poll, without waiting."""
        replies = []
        while not self._answered.empty():
            replies.append(self._answered.get())
        self._in_flight -= len(replies)
        return replies

    def with_temperature(self, temperature: float | None) -> "RemotePolicy":
        """The same endpoint at another temperature; None changes nothing."""
        if temperature is None:
            return self
        other = RemotePolicy(self.policy_id, self._endpoint, self._settings)
        other._temperature = temperature
        return other

    def close(self) -> None:
        """Drop what is waiting and close the connections; safe to call twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _answer(self, request: TurnRequest) -> None:
        began = time.monotonic()
        text, reason, usage, error = "", "failed", (0, 0), None
        try:
            text, reason, usage = self._ask_until_answered(request, began + self._endpoint.timeout_s)
        except _AnswerError as failure:
            error = f"policies.{self.policy_id}: {failure}"
        except Exception as failure:  # noqa: BLE001  # a thread's exception would be lost and the rollout wait for ever
            error = f"policies.{self.policy_id}: {type(failure).__name__}: {failure}"
        self._answered.put(_reply(request, text, reason, usage, time.monotonic() - began, error))

    def _ask_until_answered(self, request: TurnRequest, until: float) -> tuple[str, str, tuple[int, int]]:
        pause = 0.25
        for attempt in range(self._endpoint.retries + 1):
            try:
                return self._ask(request, until)
            except _AnswerError as error:
                pause = min(2.0 * pause, _LONGEST_PAUSE_S)
                wait = pause * random.uniform(0.5, 1.0) if error.pause_s is None else error.pause_s
                if not error.may_pass or attempt == self._endpoint.retries or time.monotonic() + wait >= until:
                    raise
                time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, request: TurnRequest, until: float) -> tuple[str, str, tuple[int, int]]:
        import httpx

        sampling = self._settings.sampling
        body = {
            "model": self._endpoint.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": sampling.max_tokens,
            "temperature": self._temperature,
            "top_p": sampling.top_p,
            "seed": request.seed % 2**31,
        }
        left = max(0.01, until - time.monotonic())
        try:
            with self._client.stream("POST", "chat/completions", json=body, timeout=left) as response:
                content = bytearray()
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise _AnswerError(f"the answer is longer than {_MOST_BYTES} bytes", may_pass=False)
                    if time.monotonic() > until:
                        raise _AnswerError(f"no answer within {self._endpoint.timeout_s:g} s", may_pass=False)
        except httpx.TimeoutException as error:
            raise _AnswerError(f"no answer within {self._endpoint.timeout_s:g} s", may_pass=False) from error
        except httpx.HTTPError as error:
            raise _AnswerError(f"cannot be reached ({type(error).__name__}: {error})", may_pass=True) from error
        if response.status_code != 200:
            excerpt = bytes(content[:160]).decode("utf-8", "replace")
            raise _AnswerError(
                f"answered {response.status_code} ({excerpt})",
                may_pass=response.status_code in _RETRIED,
                pause_s=_retry_after(response.headers),
            )
        return _read(bytes(content))


def check_endpoints(policies: Mapping[str, PolicySettings]) -> None:
    """Ask every endpoint for its models, so that one that is down is found before any model loads.

    Raises:
        SettingsError: If one cannot be reached or refuses the key.
    """
    import httpx

    for policy_id, settings in policies.items():
        if settings.endpoint is None:
            continue
        where = f"policies.{policy_id}.endpoint.url={settings.endpoint.url!r}"
        try:
            with _client(policy_id, settings.endpoint) as client:
                status = client.get("models", timeout=10.0).status_code
        except httpx.HTTPError as error:
            raise SettingsError(
                f"{where} cannot be reached ({type(error).__name__}); start the server, or mend the address"
            ) from error
        if status in (401, 403):
            raise SettingsError(f"{where} refuses the key ({status}); name the variable that holds it in 'api_key_env'")


def _client(policy_id: str, endpoint: EndpointSettings) -> Any:  # Any: httpx comes with an extra
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("an endpoint needs httpx; pip install 'mas-envs[train]'") from error
    headers = {}
    if endpoint.api_key_env is not None:
        key = os.environ.get(endpoint.api_key_env)
        if not key:
            raise SettingsError(
                f"policies.{policy_id}.endpoint.api_key_env={endpoint.api_key_env!r}: no such environment variable; "
                "set it to the key"
            )
        headers["Authorization"] = f"Bearer {key}"
    return httpx.Client(
        base_url=f"{endpoint.url.rstrip('/')}/",
        headers=headers,
        limits=httpx.Limits(max_connections=endpoint.max_concurrency),
        trust_env=urlsplit(endpoint.url).hostname not in _LOOPBACK,
    )


def _read(content: bytes) -> tuple[str, str, tuple[int, int]]:
    """Text, finish reason and used tokens of an answer, which may be anything."""
    try:
        raw = json.loads(content)
        choice = raw["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError) as error:
        raise _AnswerError(f"sent {content[:80]!r}, which is no chat completion", may_pass=False) from error
    if not isinstance(text, str):
        raise _AnswerError(f"sent the content {text!r:.80}; expected text, no tool call", may_pass=False)
    usage = raw.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [0, 0]
    prompt, completion = (count if isinstance(count, int) and count >= 0 else 0 for count in counts)
    return text, "length" if choice.get("finish_reason") == "length" else "stop", (prompt, completion)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return min(float(headers["retry-after"]), _LONGEST_PAUSE_S)
    except (KeyError, ValueError):
        return None


def _reply(
    request: TurnRequest, text: str, reason: str, usage: tuple[int, int], seconds: float, error: str | None
) -> TurnReply:
    finish: FinishReason = "stop" if reason == "stop" else "length" if reason == "length" else "failed"
    return TurnReply(
        request_id=request.request_id,
        text=text,
        prompt_ids=(),
        completion_ids=(),
        behaviour_logprobs=(),
        finish_reason=finish,
        policy_version=0,
        seconds=seconds,
        error=error,
        num_prompt_tokens=usage[0],
        num_completion_tokens=usage[1],
    )
