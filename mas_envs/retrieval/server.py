"""The retrieval server: both dialects of the Search-R1 protocol over HTTP, concurrent requests batched together."""

import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.batching import SearchBatcher, TooBusyError
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.protocol import Passage, RetrievalError, Retriever
from mas_envs.retrieval.server_metrics import ServerMetrics

__all__ = ["Limits", "build_server", "listen", "serve_forever"]


@dataclass(frozen=True)
class Limits:
    """What the server takes; each must be a whole number >= 1."""

    default_topk: int = 3
    """Passages for a request that names no `topk`, or 0."""
    max_topk: int = 100
    """Most passages a request may ask for."""
    max_queries: int = 1024
    """Most queries of one request."""
    max_query_chars: int = 16_384
    """Longest query."""
    max_body_bytes: int = 4 << 20
    """Longest request."""
    max_batch: int = 256
    """Most queries of one search."""
    max_waiting: int = 8192
    """Most queries waiting; further requests are told to come again (503)."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not is_whole(value) or value < 1:
                raise BadArgumentError(f"{name}={value!r}: expected a whole number >= 1")


class _RefusedError(Exception):
    """A request that is not served: the status code and the sentence that goes back."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True)
class _Wanted:
    queries: Sequence[str]
    topk: int
    with_scores: bool


def build_server(retriever: Retriever, limits: Limits | None = None) -> Any:  # Any: fastapi comes with an extra
    """The ASGI application.

    `POST /retrieve` takes `query` (one) or `queries` (a list), `topk` and `return_scores`, and answers
    `{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}`, or bare documents without scores. A blank
    query finds nothing. `GET /health` and `GET /metrics` (Prometheus) tell how it goes.

    Raises:
        MissingExtraError: Without fastapi or prometheus-client.
    """
    fastapi = need("fastapi", "mas-envs serve")
    limits = limits or Limits()
    metrics = ServerMetrics()
    batcher = SearchBatcher(
        retriever, max_batch=limits.max_batch, max_waiting=limits.max_waiting, observe=metrics.search
    )

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = fastapi.FastAPI(title="mas-envs retrieval", lifespan=lifespan)

    async def retrieve(request: Any) -> Any:
        started = time.perf_counter()
        try:
            wanted = _wanted(await _body(request, limits.max_body_bytes), limits)
            answer, status = await _answer(batcher, wanted), 200
        except _RefusedError as error:
            answer, status = {"detail": str(error)}, error.status
        metrics.request(status, time.perf_counter() - started)
        headers = {"Retry-After": "1"} if status == 503 else {}
        content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
        return fastapi.Response(content, status, headers, "application/json")

    async def health(request: Any) -> Any:
        passages = getattr(retriever, "passages", None)
        state = {"status": "ok", "retriever": repr(retriever), "passages": None if passages is None else len(passages)}
        return fastapi.Response(json.dumps(state), media_type="application/json")

    async def show_metrics(request: Any) -> Any:
        metrics.waiting(batcher.num_waiting)
        return fastapi.Response(metrics.exposition(), media_type=metrics.media_type)

    app.add_route("/retrieve", retrieve, methods=["POST"])
    app.add_route("/health", health, methods=["GET"])
    app.add_route("/metrics", show_metrics, methods=["GET"])
    return app


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 lets the system choose one.

    Raises:
        RetrievalError: If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets no-delay on these only
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise RetrievalError(
            f"cannot listen on {host}:{port} ({error}); expected a free port of this machine; --port 0 takes any"
        ) from error
    return listener


def serve_forever(app: Any, listener: socket.socket, on_start: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are answered first.

    Raises:
        MissingExtraError: Without uvicorn.
    """
    uvicorn = need("uvicorn", "mas-envs serve")
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=10, backlog=4096)
    server = uvicorn.Server(config)
    # uvicorn raises the signal once more after its clean end; the command's exit code is ours to choose
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    on_start()
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()


async def _body(request: Any, max_bytes: int) -> Any:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _RefusedError(413, f"the request is longer than {max_bytes} bytes; send fewer or shorter queries")
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise _RefusedError(400, f"the request is not JSON ({error}); expected an object with 'queries'") from error


def _wanted(raw: Any, limits: Limits) -> _Wanted:
    if not isinstance(raw, dict):
        raise _RefusedError(400, f"expected an object with 'queries' or 'query', got {type(raw).__name__}")
    if (raw.get("query") is None) == (raw.get("queries") is None):
        raise _RefusedError(422, "expected either 'query' (text) or 'queries' (a list of texts)")
    queries = [raw["query"]] if raw.get("queries") is None else raw["queries"]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _RefusedError(422, "'queries' must be a list of texts, 'query' one text")
    if len(queries) > limits.max_queries:
        raise _RefusedError(422, f"{len(queries)} queries in one request; the limit is {limits.max_queries}")
    longest = max(map(len, queries), default=0)
    if longest > limits.max_query_chars:
        raise _RefusedError(422, f"a query has {longest} characters; the limit is {limits.max_query_chars}")
    topk = raw.get("topk") or limits.default_topk
    if not is_whole(topk) or not 1 <= topk <= limits.max_topk:
        raise _RefusedError(422, f"topk={topk!r:.40}: expected a whole number from 1 to {limits.max_topk}")
    with_scores = raw.get("return_scores", False)
    if not isinstance(with_scores, bool):
        raise _RefusedError(422, f"return_scores={with_scores!r:.40}: expected true or false")
    return _Wanted(queries, topk, with_scores)


async def _answer(batcher: SearchBatcher, wanted: _Wanted) -> dict[str, Any]:
    filled = [query for query in wanted.queries if query.strip()]
    try:
        found = iter(await batcher.search(filled, wanted.topk) if filled else [])
    except TooBusyError as error:
        raise _RefusedError(503, f"{error}; try again in a second") from error
    except Exception as error:  # the retriever is foreign code; the client is told, the server lives
        raise _RefusedError(500, f"the search failed ({type(error).__name__}: {error})"[:500]) from error
    return {
        "result": [
            [_document(passage, wanted.with_scores) for passage in next(found)] if query.strip() else []
            for query in wanted.queries
        ]
    }


def _document(passage: Passage, with_scores: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if with_scores else document
