"""One grading worker: reads JSON lines on stdin, answers on stdout, and ends when stdin does.

Started by `MathGrader` as `python -m mas_envs.math_loop.grading_worker MEMORY_MB`. A request holds `gold` and
`prediction`, both normalised, and `limit_s`; a reply holds `correct`, or `error` (`timeout`, or what went wrong). The
first line, `{"ready": true}`, says that the libraries are loaded.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

__all__ = ["main"]


class _OutOfTimeError(BaseException):
    """The time for one request is over; no `except Exception` in a library may catch it."""


def main() -> None:
    """Serves requests until stdin ends."""
    replies = _private_stdout()
    _limit_memory(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(5_000)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _out_of_time)
    from mas_envs.math_loop import answers, rationals, symbolic

    _write(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with _time_limit(request["limit_s"]):
                verdict = answers.compare(request["gold"], request["prediction"], symbolic.equal)
                reply: dict[str, object] = {"correct": bool(verdict)}
        except _OutOfTimeError:
            reply = {"error": "timeout"}
        except rationals.TooLargeError:
            reply = {"correct": False}
        except Exception as error:  # noqa: BLE001 - the parent owns the record of a failure: it reports and replaces us
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        _write(replies, reply)


def _private_stdout() -> TextIO:
    """Our own copy of stdout; whatever a library prints goes nowhere."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return replies


def _write(replies: TextIO, reply: dict[str, object]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _limit_memory(megabytes: int) -> None:
    if megabytes <= 0:
        return
    import resource

    limit = megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise _OutOfTimeError


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
