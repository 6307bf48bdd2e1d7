"""Servers on the loopback: ours, and ones that misbehave."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import uvicorn

from mas_envs.retrieval.protocol import Retriever
from mas_envs.retrieval.server import Limits, build_server, listen

__all__ = ["Answer", "fake", "post", "served"]

Answer = tuple[int, bytes]
"""Status and body."""


@contextmanager
def served(retriever: Retriever, limits: Limits | None = None, port: int = 0) -> Iterator[str]:
    """Our server in a thread; gives its address."""
    listener: socket.socket = listen("127.0.0.1", port)
    server = uvicorn.Server(uvicorn.Config(build_server(retriever, limits), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        while not server.started:
            time.sleep(0.005)
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def fake(answer: Callable[[bytes, int], Answer]) -> Iterator[str]:
    """A server whose every answer `answer(body, number of the request)` decides; gives its address."""
    count = 0
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal count
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                number, count = count, count + 1
            status, content = answer(body, number)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True  # the client has gone

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(url: str, body: object) -> httpx.Response:
    """What `POST /retrieve` answers."""
    with httpx.Client(trust_env=False, timeout=30.0) as client:
        return client.post(f"{url}/retrieve", json=body)
