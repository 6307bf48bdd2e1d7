"""`RemotePolicy`: a team-mate behind an OpenAI-compatible endpoint; it acts, costs tokens, and is never trained."""

import copy
import json
import os
import queue
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from mas_envs.errors import MissingExtraError
from mas_envs.http_post import Answer, AnswerTooLongError, PassingTroubleError, is_loopback, post, until_answered
from trainers.config import EndpointSettings, PolicySettings
from trainers.engines.base import FinishReason
from trainers.overrides import SettingsError
from trainers.rollout import TurnReply, TurnRequest

__all__ = ["RemotePolicy", "check_endpoints"]

_MOST_BYTES = 8 << 20


class _RefusedError(Exception):
    """An answer that no turn can be made of, and that asking again would not change."""


class RemotePolicy:
    """Answers turns by `POST {url}/chat/completions`; several requests wait side by side.

    A request that fails for good loses its episode and no other. Refusals (401, 404, a context that is too long) are
    not asked again; rate limits and servers in trouble are, after a pause that doubles, or that the server names.

    Args:
        policy_id: Its name, for messages.
        endpoint: Where it is.
        settings: Of the policy; of its sampling `top_k` is not part of the protocol.

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
        other = copy.copy(self)  # the same connections and threads, answers of its own
        other._temperature, other._answered, other._in_flight = temperature, queue.SimpleQueue(), 0
        return other

    def close(self) -> None:
        """Drop what is waiting and close the connections; safe to call twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _answer(self, request: TurnRequest) -> None:
        began = time.monotonic()
        try:
            reply = self._ask(request, began + self._endpoint.timeout_s)
        except (PassingTroubleError, AnswerTooLongError, _RefusedError) as error:
            reply = _lost(request, f"policies.{self.policy_id}: {error}")
        except Exception as error:  # noqa: BLE001  # lost in a thread otherwise, and the rollout would wait for ever
            reply = _lost(request, f"policies.{self.policy_id}: {type(error).__name__}: {error}")
        self._answered.put(replace(reply, seconds=time.monotonic() - began))

    def _ask(self, request: TurnRequest, until: float) -> TurnReply:
        sampling = self._settings.sampling
        body = {
            "model": self._endpoint.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": sampling.max_tokens,
            "temperature": self._temperature,
            "top_p": sampling.top_p,
            "seed": request.seed % 2**31,
        }
        content = json.dumps(body).encode()

        def attempt() -> Answer:
            return post(
                self._client,
                "chat/completions",
                content,
                until=until,
                attempt_s=self._endpoint.timeout_s,
                most_bytes=_MOST_BYTES,
            )

        answer = until_answered(attempt, until=until, most_retries=self._endpoint.retries)
        if answer.status != 200:
            raise _RefusedError(f"answered {answer.status} ({answer.excerpt})")
        return _read(request, answer.content)


def check_endpoints(policies: Mapping[str, PolicySettings]) -> None:
    """Ask every endpoint for its models, so that one that is down is found before any model loads.

    Raises:
        SettingsError: If one cannot be reached or refuses the key.
    """
    for policy_id, settings in policies.items():
        if settings.endpoint is None:
            continue
        import httpx

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
        trust_env=not is_loopback(endpoint.url),
    )


def _read(request: TurnRequest, content: bytes) -> TurnReply:
    """The reply in an answer, which may be anything."""
    try:
        raw = json.loads(content)
        choice = raw["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError) as error:
        raise _RefusedError(f"sent {content[:80]!r}, which is no chat completion") from error
    if not isinstance(text, str):
        raise _RefusedError(f"sent the content {text!r:.80}; expected text, no tool call")
    usage = raw.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [0, 0]
    prompt, completion = (count if isinstance(count, int) and count >= 0 else 0 for count in counts)
    reply = _lost(request, None)
    finish: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
    return replace(reply, text=text, finish_reason=finish, num_prompt_tokens=prompt, num_completion_tokens=completion)


def _lost(request: TurnRequest, error: str | None) -> TurnReply:
    """A reply without text: its episode is lost."""
    return TurnReply(request.request_id, "", (), (), (), "failed", policy_version=0, seconds=0.0, error=error)
