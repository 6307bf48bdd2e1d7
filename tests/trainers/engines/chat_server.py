"""A server on the loopback that speaks `/v1/chat/completions`, well or badly."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Answer", "ChatServer", "Seen", "approving", "chat_server", "completion", "free_url"]


@dataclass(frozen=True)
class Answer:
    """What the server sends."""

    content: bytes = b""
    """The body."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    drops: bool = False
    """Close the connection in the middle of the answer."""
    hang: threading.Event | None = None
    """Send the headers, then wait for this, at most ten seconds, before the body."""


@dataclass(frozen=True)
class Seen:
    """A request that came in."""

    body: dict[str, Any]
    """The parsed body."""
    key: str | None
    """The header `Authorization`."""
    path: str
    """Where it was sent."""


@dataclass
class ChatServer:
    """A running server."""

    url: str
    """What goes into `endpoint.url`."""
    seen: list[Seen] = field(default_factory=list)
    """Requests so far, in order."""


def completion(content: Any, *, finish: str = "stop", usage: Any = None, **message: Any) -> bytes:
    """The body of a chat completion that used 11 and 4 tokens, unless told otherwise."""
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    used = {"prompt_tokens": 11, "completion_tokens": 4} if usage is None else usage
    return json.dumps({"choices": [choice], "usage": used}).encode()


def approving(seen: Seen, number: int) -> Answer:
    """A verifier that approves of everything."""
    return Answer(completion("<verify>approve</verify>"))


@contextmanager
def chat_server(answer: Callable[[Seen, int], Answer], port: int = 0) -> Iterator[ChatServer]:
    """A server whose every answer `answer(request, its number)` decides."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen = Seen(body, self.headers["Authorization"], self.path)
            with lock:
                number = len(running.seen)
                running.seen.append(seen)
            with contextlib.suppress(OSError):  # the client may have gone
                self._send(answer(seen, number))

        def _send(self, given: Answer) -> None:
            self.send_response(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.content)))
            self.end_headers()
            if given.drops:
                self.wfile.write(given.content[: len(given.content) // 2])
                self.close_connection = True
                return
            if given.hang is not None:
                given.hang.wait(10.0)
            self.wfile.write(given.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    running = ChatServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_url() -> str:
    """An address where nobody listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"
