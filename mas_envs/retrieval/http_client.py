"""`HttpRetriever`: passages from a server that speaks the Search-R1 protocol, in either dialect."""

import functools
import json
import random
import time
import weakref
from typing import Any, Literal
from urllib.parse import urlsplit

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.circuit_breaker import CircuitBreaker
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.protocol import Passage, RetrievalError, check_search
from mas_envs.retrieval.wire import parse_results

__all__ = ["Dialect", "HttpRetriever"]

Dialect = Literal["auto", "queries", "query"]
"""`queries`: a list in one request; `query`: one text a request; `auto` tries them in this order and keeps one."""

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_PAUSE_S = 5.0
_MOST_ANSWER_BYTES = 16 << 20
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class _TransientError(Exception):
    """A failure that may go away when asked again."""


class HttpRetriever:
    """Searches at a server. Safe to share between threads; copies share the connections.

    A search that fails is tried again after a pause that doubles and is drawn at random, until the deadline. After
    `trip_after` searches that failed in a row, searches fail at once for `cool_down_s`, so that a server that is down
    does not hold up every episode for the whole deadline.

    Args:
        url: Of the server, or of its `/retrieve`.
        dialect: What the server reads.
        deadline_s: Seconds that one search may take, retries included; > 0.
        attempt_s: Seconds that one attempt may take; > 0.
        max_connections: Connections held open; more searches than that wait their turn.
        trip_after: Failures in a row that make searches fail at once; >= 1.
        cool_down_s: Seconds they do so; > 0.

    Raises:
        BadArgumentError: If an argument is out of range.
        MissingExtraError: Without httpx.
    """

    def __init__(
        self,
        url: str,
        *,
        dialect: Dialect = "auto",
        deadline_s: float = 20.0,
        attempt_s: float = 10.0,
        max_connections: int = 64,
        trip_after: int = 3,
        cool_down_s: float = 5.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadArgumentError(f"url={url!r}: expected http://HOST:PORT or https://HOST:PORT")
        if dialect not in ("auto", "queries", "query"):
            raise BadArgumentError(f"dialect={dialect!r}: expected 'auto', 'queries' or 'query'")
        for name, seconds in (("deadline_s", deadline_s), ("attempt_s", attempt_s), ("cool_down_s", cool_down_s)):
            if not seconds > 0.0:
                raise BadArgumentError(f"{name}={seconds!r}: expected seconds > 0")
        for name, value in (("max_connections", max_connections), ("trip_after", trip_after)):
            if not is_whole(value) or value < 1:
                raise BadArgumentError(f"{name}={value!r}: expected a whole number >= 1")
        self._settings: dict[str, Any] = {
            "dialect": dialect,
            "deadline_s": deadline_s,
            "attempt_s": attempt_s,
            "max_connections": max_connections,
            "trip_after": trip_after,
            "cool_down_s": cool_down_s,
        }
        self._httpx = need("httpx", "HttpRetriever")
        self.url = url if parts.path.rstrip("/").endswith("/retrieve") else f"{url.rstrip('/')}/retrieve"
        self.deadline_s, self.attempt_s = deadline_s, attempt_s
        self._dialect: Dialect = dialect
        self._breaker = CircuitBreaker(trip_after, cool_down_s)
        self._client = self._httpx.Client(
            limits=self._httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
            trust_env=parts.hostname not in _LOOPBACK,  # a proxy of the environment does not know our loopback
        )
        self._closing = weakref.finalize(self, self._client.close)  # also when nobody calls close

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """At most `k` passages for each query, best first.

        Raises:
            BadArgumentError: If `queries` is not a list of str, or `k` not a whole number >= 1.
            RetrievalError: If the server is down, slow, refuses the request, or sends something else than passages.
        """
        check_search(queries, k)
        if not queries:
            return []
        if not self._breaker.allows():
            raise RetrievalError(f"{self.url}: failed several times in a row; the next attempt follows in seconds")
        until = time.monotonic() + self.deadline_s
        try:
            found = self._search(queries, k, until)
        except _DialectError:  # the request's fault: the server is there
            raise
        except RetrievalError:
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        return found

    def check(self) -> None:
        """Ask for one passage, so that a server that is down is found before anything else starts.

        Raises:
            RetrievalError: If it does not answer as it should.
        """
        try:
            self._search(["ping"], 1, time.monotonic() + min(self.deadline_s, 5.0))
        except RetrievalError as error:
            raise RetrievalError(
                f"{error}; expected a retrieval server there: start one with `mas-envs serve DIR`, or mend the address"
            ) from error

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._closing()

    def _search(self, queries: list[str], k: int, until: float) -> list[list[Passage]]:
        if self._dialect == "query":
            return [self._ask({"query": query}, 1, k, until)[0] for query in queries]
        try:
            found = self._ask({"queries": queries}, len(queries), k, until)
        except _DialectError as error:
            if self._dialect == "queries":
                raise RetrievalError(str(error)) from error
            found = [self._ask({"query": query}, 1, k, until)[0] for query in queries]
            self._dialect = "query"
        else:
            self._dialect = "queries"
        return found

    def _ask(self, body: dict[str, Any], num_queries: int, k: int, until: float) -> list[list[Passage]]:
        """One request, again until it is answered or the deadline has come."""
        content = json.dumps({**body, "topk": k, "return_scores": True}).encode()
        pause = 0.1
        while True:
            try:
                return parse_results(self._post(content, until), num_queries, k, self.url)
            except _TransientError as error:
                pause = min(2.0 * pause, _LONGEST_PAUSE_S)
                wait = pause * random.uniform(0.5, 1.0)
                if time.monotonic() + wait >= until:
                    raise RetrievalError(f"{self.url}: {error}; gave up when the time for a search was over") from error
                time.sleep(wait)

    def _post(self, content: bytes, until: float) -> bytes:
        left = until - time.monotonic()
        timeout = self._httpx.Timeout(max(0.01, min(left, self.attempt_s)))
        stop = time.monotonic() + max(0.01, min(left, self.attempt_s))
        headers = {"Content-Type": "application/json"}
        try:
            with self._client.stream("POST", self.url, content=content, headers=headers, timeout=timeout) as response:
                answer = bytearray()
                for chunk in response.iter_bytes():
                    answer += chunk
                    if len(answer) > _MOST_ANSWER_BYTES:
                        raise RetrievalError(f"{self.url}: the answer is longer than {_MOST_ANSWER_BYTES} bytes")
                    if time.monotonic() > stop:  # a server that trickles keeps no read timeout
                        raise _TransientError(f"the answer took longer than {self.attempt_s:g} s")
        except self._httpx.TimeoutException as error:
            raise _TransientError(f"no answer in time ({type(error).__name__})") from error
        except self._httpx.HTTPError as error:
            raise _TransientError(f"cannot be reached ({type(error).__name__}: {error})") from error
        status = response.status_code
        if status in _RETRIED:
            raise _TransientError(f"answered {status} ({_excerpt(answer)})")
        if status in (400, 422):
            raise _DialectError(f"{self.url}: refused the request with {status} ({_excerpt(answer)})")
        if status != 200:
            raise RetrievalError(f"{self.url}: answered {status} ({_excerpt(answer)}); check the address")
        return bytes(answer)

    def __deepcopy__(self, memo: dict[int, Any]) -> "HttpRetriever":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (functools.partial(HttpRetriever, **self._settings), (self.url,))

    def __repr__(self) -> str:
        return f"HttpRetriever({self.url!r})"


class _DialectError(RetrievalError):
    """The server does not read the request; perhaps it reads the other dialect."""


def _excerpt(answer: bytearray) -> str:
    return bytes(answer[:120]).decode("utf-8", "replace")
