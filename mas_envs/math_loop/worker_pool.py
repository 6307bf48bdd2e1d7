"""Killable worker processes that judge one pair of answers at a time; safe for threads and for forks."""

import contextlib
import functools
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mas_envs.errors import GradingError

__all__ = ["Verdict", "WorkerPool"]

_START_LIMIT_S = 60.0
_OWN_LIMIT_FRACTION = 0.9
_COMMAND = ("-P", "-m", "mas_envs.math_loop.grading_worker")
_IMPORT_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Verdict:
    """What came of one request."""

    correct: bool | None
    """None when the worker gave no verdict; `problem` then says why."""
    problem: str | None = None
    """`timeout`, or the failure in words."""


class _Worker:
    """One process and its two pipes."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
        )
        self._is_ready = False
        self._buffer = b""
        self.num_answers = 0

    def ask(self, request: dict[str, object], limit_s: float) -> Verdict:
        """The worker's verdict; a worker that gave none is not to be used again."""
        if not self._is_ready:
            reply = self._read_line(_START_LIMIT_S)
            if reply is None or not reply.get("ready"):
                return Verdict(None, f"the worker did not start ({self._ending()})")
            self._is_ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            reply = self._read_line(limit_s)
        except OSError:
            return Verdict(None, f"the worker died before the request ({self._ending()})")
        if reply is None:
            is_alive = self._process.poll() is None
            return Verdict(None, "timeout" if is_alive else f"the worker died ({self._ending()})")
        self.num_answers += 1
        if "correct" in reply:
            return Verdict(bool(reply["correct"]))
        return Verdict(None, str(reply.get("error", "the worker sent an unknown reply")))

    def _read_line(self, limit_s: float) -> dict[str, object] | None:
        """The next reply; None at the limit or when the process is gone."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    return None
                chunk = os.read(self._process.stdout.fileno(), 65_536)
                if not chunk:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(1.0)
                    return None
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, object] = json.loads(line)
        return reply

    def _ending(self) -> str:
        code = self._process.poll()
        return "it still runs" if code is None else f"exit code {code}"

    def kill(self) -> None:
        """Ends the process now; no error if it has ended."""
        self._process.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Closes our ends of the pipes; in a forked child the process itself is not ours to end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._process.returncode is None:
            self._process.returncode = 0


class WorkerPool:
    """Up to `num_workers` processes, started when first needed, replaced when they hang, die or have worked enough.

    Attributes:
        num_started: Processes started so far.
    """

    def __init__(self, *, num_workers: int, memory_mb: int, recycle_after: int) -> None:
        self._num_workers = num_workers
        self._recycle_after = recycle_after
        self._command = (sys.executable, *_COMMAND, str(memory_mb))
        self._reset()
        _live_pools().add(self)
        self._finalizer = weakref.finalize(self, _kill_all, self._workers)

    def _reset(self) -> None:
        self._slots = threading.BoundedSemaphore(self._num_workers)
        self._lock = threading.Lock()
        self._workers: set[_Worker] = getattr(self, "_workers", set())
        self._idle: list[_Worker] = []
        self._is_closed = getattr(self, "_is_closed", False)
        self.num_started = 0

    def ask(self, request: dict[str, object], limit_s: float) -> Verdict:
        """A verdict within `limit_s` of the moment a worker is free and running.

        Raises:
            GradingError: If the pool is closed.
        """
        with self._slots, self._borrowed() as worker:
            return worker.ask({**request, "limit_s": limit_s * _OWN_LIMIT_FRACTION}, limit_s)

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[_Worker]:
        worker = self._take()
        before = worker.num_answers
        try:
            yield worker
        finally:
            is_usable = before < worker.num_answers < self._recycle_after
            with self._lock:
                keep = is_usable and not self._is_closed
                if keep:
                    self._idle.append(worker)
                else:
                    self._workers.discard(worker)
            if not keep:
                worker.kill()

    def _take(self) -> _Worker:
        with self._lock:
            if self._is_closed:
                raise GradingError(
                    "The grader is closed, but an open one was expected; grade inside its `with` block or make another."
                )
            if self._idle:
                return self._idle.pop()
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_IMPORT_ROOT, environment.get("PYTHONPATH", ""))))
            worker = _Worker(self._command, environment)
            self._workers.add(worker)
            self.num_started += 1
            return worker

    def close(self) -> None:
        """Ends every worker; a second call does nothing."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._workers.difference_update(idle)
        for worker in idle:
            worker.kill()

    def forget_parent(self) -> None:
        """Starts afresh in a forked child: the parent's workers stay the parent's."""
        for worker in self._workers:
            worker.abandon()
        self._workers.clear()
        self._reset()


def _kill_all(workers: set[_Worker]) -> None:
    for worker in tuple(workers):
        worker.kill()
    workers.clear()


@functools.cache
def _live_pools() -> "weakref.WeakSet[WorkerPool]":
    """Every pool of this process; a fork resets them in the child."""
    pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()

    def reset_in_child() -> None:
        for pool in tuple(pools):
            pool.forget_parent()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset_in_child)
    return pools
