"""An engine over any OpenAI-compatible endpoint, for policies that are not trained: messages in, text out."""

import asyncio
import json
import logging
import queue
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mas_envs.errors import MissingExtraError
from mas_envs.spaces import Message
from trainers.engines.base import FinishReason, Sampling
from trainers.engines.chat_answer import ChatAnswer, EndpointError, read_answer, refusal
from trainers.engines.loop_thread import LoopThread

__all__ = ["ChatCompletion", "ChatRequest", "OpenAIEngine"]

logger = logging.getLogger(__name__)

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_BYTES = 8 << 20
_CONNECT_S = 10.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 20.0
_SHORTEST_SECRET = 12
"""Keys below this length are placeholders such as `EMPTY`, which may well stand in a completion."""


@dataclass(frozen=True)
class ChatRequest:
    """One completion that is wanted, as text; see `base.Request` for its sibling in tokens."""

    request_id: str
    """Unique among the requests in flight; comes back with the completion."""
    messages: tuple[Message, ...]
    """The conversation, at least one message."""
    sampling: Sampling
    seed: int
    """Sent along; whether the endpoint heeds it is its own affair."""


@dataclass(frozen=True)
class ChatCompletion:
    """What an endpoint answered."""

    request_id: str
    """The id of the request."""
    text: str
    """The assistant's message; empty for failures."""
    finish_reason: FinishReason
    """`deadline`: no answer within `timeout_s`; `failed` and `cancelled` likewise have no text."""
    num_prompt_tokens: int
    """As the endpoint counts them."""
    num_completion_tokens: int
    """The same."""
    seconds: float
    """Wall time from sending to the end, retries and their pauses included, the wait for a free slot not."""
    error: str | None = None
    """What went wrong."""


class OpenAIEngine:
    """Completions by `POST {url}/chat/completions`, several at a time; `submit`, `poll`, `cancel`, `close` as ever.

    Rate limits, servers in trouble and broken connections are asked again after a pause that doubles and is drawn at
    random, or that the server names. Whatever else an endpoint does, it costs that one completion.

    Args:
        url: Of the endpoint, such as `http://localhost:8000/v1`.
        model: What the endpoint calls the model.
        api_key: Sent as bearer token and cut out of all answers; None sends none.
        max_concurrency: Requests at the same time; >= 1.
        retries: Times a request is sent again; >= 0.
        timeout_s: Seconds from sending a request to its answer, retries included; > 0.
        extra_body: Further fields of the request; None takes a field out.

    Raises:
        ValueError: If the key holds characters that no header can.
        MissingExtraError: Without httpx.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        max_concurrency: int = 16,
        retries: int = 4,
        timeout_s: float = 120.0,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("api_key (not shown) holds a space or a character beyond ASCII; expected the bare key")
        self.url, self.model = url.rstrip("/"), model
        self._secret = api_key.encode() if api_key and len(api_key) >= _SHORTEST_SECRET else None
        self._retries, self._timeout_s = retries, timeout_s
        self._extra_body = dict(extra_body or {})
        self._client = _client(url, api_key, max_concurrency)
        self._slots = asyncio.Semaphore(max_concurrency)
        self._loop = LoopThread("openai-engine")
        self._in_flight: dict[str, tuple[ChatRequest, Future[None]]] = {}
        self._answered: queue.SimpleQueue[tuple[ChatRequest, ChatCompletion]] = queue.SimpleQueue()
        self._cancelled: list[ChatCompletion] = []
        self._counts_tokens = True
        self._is_closed = False

    @property
    def num_in_flight(self) -> int:
        """Requests that were submitted and not yet given back."""
        return len(self._in_flight) + len(self._cancelled)

    def submit(self, requests: Iterable[ChatRequest]) -> None:
        """Send requests; returns at once.

        Raises:
            ValueError: If an id is in flight already.
            RuntimeError: If the engine is closed.
        """
        if self._is_closed:
            raise RuntimeError("submit on a closed engine; expected an open one: build a new OpenAIEngine")
        for request in requests:
            if request.request_id in self._in_flight:
                raise ValueError(f"request_id={request.request_id!r} is in flight already; expected a new id")
            self._in_flight[request.request_id] = (request, self._loop.run(self._answer(request)))

    def poll(self) -> list[ChatCompletion]:
        """What was answered since the last poll; waits until there is something, [] when nothing is in flight."""
        ended = self.arrived()
        while not ended and self._in_flight:
            ended = self._deliver(*self._answered.get())
        return [*ended, *self.arrived()]

    def arrived(self) -> list[ChatCompletion]:
        """What was answered since the last poll, without waiting."""
        ended, self._cancelled = self._cancelled, []
        while not self._answered.empty():
            ended += self._deliver(*self._answered.get())
        return ended

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests; each comes back once, as `cancelled`. Unknown ids are ignored."""
        for request_id in request_ids:
            if request_id in self._in_flight:
                self._in_flight.pop(request_id)[1].cancel()
                self._cancelled.append(ChatCompletion(request_id, "", "cancelled", 0, 0, 0.0))

    def check(self, sampling: Sampling) -> None:
        """Ask for one completion, so that a wrong address, key, model or field is found before anything else starts.

        Args:
            sampling: How later requests will ask.

        Raises:
            EndpointError: If there is none to be had; a server that is down is asked once only.
        """
        question: Message = {"role": "user", "content": "1 + 1 = ?"}
        request = ChatRequest("check", (question,), sampling, seed=0)
        try:
            self._loop.run(self._ask_until_answered(request, while_down=False)).result()
        except (EndpointError, TimeoutError) as error:
            raise EndpointError(f"{self.url}: {error}") from error

    def close(self) -> None:
        """Drop what is in flight, unanswered, and close the connections; safe to call twice."""
        self._is_closed = True
        self._in_flight.clear()
        self._cancelled.clear()
        self._loop.close(self._client.aclose())

    def _deliver(self, request: ChatRequest, completion: ChatCompletion) -> list[ChatCompletion]:
        """The completion as a list of one; empty when its request was cancelled just then."""
        known = self._in_flight.get(request.request_id)
        if known is None or known[0] is not request:
            return []
        del self._in_flight[request.request_id]
        return [completion]

    async def _answer(self, request: ChatRequest) -> None:
        async with self._slots:
            began = time.monotonic()
            reason: FinishReason = "failed"
            answer, error = None, None
            try:
                answer = await self._ask_until_answered(request)
            except TimeoutError as late:
                reason, error = "deadline", f"{self.url}: {late}"
            except EndpointError as failure:
                error = f"{self.url}: {failure}"
            except Exception as failure:  # noqa: BLE001  # lost in this thread, and the rollout would wait for ever
                error = f"{self.url}: {type(failure).__name__}: {failure}"
            completion = _completion(request.request_id, answer, reason, time.monotonic() - began, error)
            self._answered.put((request, completion))

    async def _ask_until_answered(self, request: ChatRequest, *, while_down: bool = True) -> ChatAnswer:
        """The answer, from as many attempts as it takes.

        Raises:
            EndpointError: If there is none to be had.
            TimeoutError: If time was up first.
        """
        trouble: EndpointError | None = None
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                for attempt in range(self._retries):
                    try:
                        return await self._ask(request)
                    except EndpointError as error:
                        trouble, pause = error, _pause(error, attempt)
                        is_late = asyncio.get_running_loop().time() + pause >= (limit.when() or 0.0)
                        if not error.may_pass or (error.is_down and not while_down) or is_late:
                            raise
                    await asyncio.sleep(pause)
                return await self._ask(request)
        except TimeoutError as error:
            before = f"; the attempt before: {trouble}" if trouble else ""
            raise TimeoutError(f"no answer within {self._timeout_s:g} s{before}") from error

    async def _ask(self, request: ChatRequest) -> ChatAnswer:
        import httpx

        body = json.dumps(_body(self.model, request, self._extra_body)).encode()
        content = bytearray()
        try:
            async with self._client.stream("POST", f"{self.url}/chat/completions", content=body) as response:
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise EndpointError(f"the answer is longer than {_MOST_BYTES} bytes")
        except httpx.HTTPError as error:
            is_down = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            what = "cannot be reached" if is_down else "broke off"
            message = f"{what} ({type(error).__name__}: {error}); start the server, or mend the address"
            raise EndpointError(message, may_pass=True, is_down=is_down) from error
        answer = bytes(content if self._secret is None else content.replace(self._secret, b"[key]"))
        if response.status_code != 200:
            raise refusal(response.status_code, response.headers, answer)
        return self._counted(read_answer(answer))

    def _counted(self, answer: ChatAnswer) -> ChatAnswer:
        if not answer.has_usage and self._counts_tokens:
            self._counts_tokens = False
            logger.warning("%s sends no usage: its tokens, and their cost, count as 0", self.url)
        return answer


def _client(url: str, api_key: str | None, max_concurrency: int) -> Any:  # Any: httpx comes with an extra
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("an endpoint needs httpx; pip install 'mas-envs[train]'") from error
    headers = {"Content-Type": "application/json"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    return httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(None, connect=_CONNECT_S),  # the whole request has a limit of its own
        limits=httpx.Limits(max_connections=max_concurrency),
        trust_env=urlsplit(url).hostname not in _LOOPBACK,  # a proxy of the environment does not know our loopback
    )


def _body(model: str, request: ChatRequest, extra: Mapping[str, Any]) -> dict[str, Any]:
    sampling = request.sampling
    body = {
        "model": model,
        "messages": [{"role": message["role"], "content": message["content"]} for message in request.messages],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed % 2**31,
    }
    if sampling.top_k:
        body["top_k"] = sampling.top_k  # beyond the protocol, but vLLM and llama.cpp take it
    return {name: value for name, value in {**body, **extra}.items() if value is not None}


def _pause(error: EndpointError, attempt: int) -> float:
    """Seconds until the next attempt, drawn so that requests which failed together do not return together."""
    if error.pause_s is not None:
        return error.pause_s + random.SystemRandom().uniform(0.0, 0.1)
    return min(_FIRST_PAUSE_S * 2.0**attempt, _LONGEST_PAUSE_S) * random.SystemRandom().uniform(0.5, 1.0)


def _completion(
    request_id: str, answer: ChatAnswer | None, reason: FinishReason, seconds: float, error: str | None
) -> ChatCompletion:
    if answer is None:
        return ChatCompletion(request_id, "", reason, 0, 0, seconds, error)
    return ChatCompletion(
        request_id=request_id,
        text=answer.text,
        finish_reason=answer.finish_reason,
        num_prompt_tokens=answer.num_prompt_tokens,
        num_completion_tokens=answer.num_completion_tokens,
        seconds=seconds,
    )
