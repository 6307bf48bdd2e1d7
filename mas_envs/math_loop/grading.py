r"""Grading of mathematical answers: the last box of a completion against a reference answer.

Numbers, units, lists and text are decided in this process within microseconds; only what needs algebra goes to a
worker process, which can be killed. Nothing a model writes is evaluated as code.
"""

import functools
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from mas_envs.actions import parse_boxed
from mas_envs.math_loop.algebra_guard import refusal
from mas_envs.math_loop.answers import compare
from mas_envs.math_loop.latex_text import normalise
from mas_envs.math_loop.rationals import TooLargeError
from mas_envs.math_loop.worker_pool import WorkerPool

__all__ = ["Grade", "MathGrader", "Status", "grade"]

Status = Literal["graded", "no_answer", "timeout", "failed"]

_MAX_ANSWER_CHARS = 20_000


@dataclass(frozen=True)
class Grade:
    """The grade of one completion."""

    correct: bool
    """Whether the answer is right; False whenever `status` is not `graded`."""
    extracted: str | None
    """Content of the last box; None when there is none."""
    status: Status
    """`graded`: judged. `no_answer`: nothing to judge. `timeout`, `failed`: the grader gave no verdict."""
    reason: str | None = None
    """Why there is no verdict, or why an answer was refused unread; None otherwise."""


class MathGrader:
    """Grades completions with a pool of worker processes of its own; any number of threads may grade at once.

    Workers start when algebra is first needed (about a second each; not counted in `limit_s`), are replaced after a
    timeout, a crash or `recycle_after` answers, and end with `close`, with the `with` block, or with the interpreter. A
    forked child gets its own workers.

    Args:
        num_workers: Most processes at a time, >= 1.
        limit_s: Longest time for one answer once a worker runs, > 0.
        memory_mb: Address space of a worker in MiB; 0 for no limit.
        recycle_after: Answers after which a worker is replaced, >= 1.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self, *, num_workers: int = 2, limit_s: float = 5.0, memory_mb: int = 2_048, recycle_after: int = 2_000
    ) -> None:
        for name, value, least in (
            ("num_workers", num_workers, 1),
            ("memory_mb", memory_mb, 0),
            ("recycle_after", recycle_after, 1),
        ):
            if value < least:
                raise ValueError(f"{name} is {value!r}, but at least {least} was expected; pass a larger number.")
        self._limit_s = _checked_limit(limit_s)
        self._pool = WorkerPool(num_workers=num_workers, memory_mb=memory_mb, recycle_after=recycle_after)

    @property
    def num_started(self) -> int:
        """Worker processes started so far."""
        return self._pool.num_started

    def grade(self, completion: str, answer: str, *, limit_s: float | None = None) -> Grade:
        r"""The grade of the last `\boxed{}` of a completion.

        Args:
            completion: The model's full text, thoughts included.
            answer: Reference answer: plain text or LaTeX, in dollars or a box, or a bracketed list of quoted answers.
            limit_s: Longest time in seconds, > 0; None for the grader's own.

        Returns:
            A grade for every input; no text of a model raises.

        Raises:
            GradingError: If the grader is closed and a worker is needed.
            ValueError: If `limit_s` is not positive.
        """
        limit_s = self._limit_s if limit_s is None else _checked_limit(limit_s)
        parsed = parse_boxed(completion)
        if parsed.content is None or not parsed.content.strip():
            return Grade(False, None, "no_answer", parsed.reason or "the box is empty")
        extracted = parsed.content
        if len(extracted) > _MAX_ANSWER_CHARS:
            same = extracted.strip() == answer.strip()
            return Grade(same, extracted, "graded", None if same else "the answer is too long to be read")
        gold, prediction = normalise(_gold_text(answer)), normalise(extracted)
        try:
            verdict, why_refused = _without_algebra(gold, prediction)
        except TooLargeError:
            return Grade(False, extracted, "graded", "a number in the answer is too large to evaluate")
        if verdict is not None:
            return Grade(verdict, extracted, "graded", None if verdict else why_refused)
        outcome = self._pool.ask({"gold": gold, "prediction": prediction}, limit_s)
        if outcome.correct is not None:
            return Grade(outcome.correct, extracted, "graded")
        if outcome.problem == "timeout":
            return Grade(False, extracted, "timeout", f"no verdict within {limit_s} s")
        return Grade(False, extracted, "failed", outcome.problem)

    def close(self) -> None:
        """Ends the workers; a second call does nothing."""
        self._pool.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a handle on processes: copies of an environment share it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def grade(completion: str, answer: str, *, limit_s: float = 5.0) -> Grade:
    r"""The grade of a completion, by one grader that this process shares.

    >>> grade(r"So it is \boxed{0.5}.", r"$\frac{1}{2}$")
    Grade(correct=True, extracted='0.5', status='graded', reason=None)

    Args:
        completion: The model's full text; the last `\boxed{}` after its thoughts is judged.
        answer: Reference answer.
        limit_s: Longest time in seconds, once a worker runs.
    """
    return _shared_grader().grade(completion, answer, limit_s=limit_s)


@functools.cache
def _shared_grader() -> MathGrader:
    return MathGrader()


def _checked_limit(limit_s: float) -> float:
    if not limit_s > 0:
        raise ValueError(f"limit_s is {limit_s!r}, but seconds above 0 were expected; pass for example 5.0.")
    return limit_s


def _gold_text(answer: str) -> str:
    """The answer itself where the reference is a sentence with a box or a list of quoted strings."""
    if r"\boxed" in answer:
        return parse_boxed(answer).content or answer
    stripped = answer.strip()
    if stripped[:2] in ("['", '["') and stripped[-2:] in ("']", '"]'):
        quote = stripped[1]
        return ";".join(part.strip(" '\"") for part in stripped[1:-1].split(f"{quote},")).replace("\\\\", "\\")
    return answer


def _without_algebra(gold: str, prediction: str) -> tuple[bool | None, str | None]:
    """The verdict of this process and why an expression was refused; no verdict where a worker should decide."""
    refusals: list[str] = []

    def refuse_or_defer(left: str, right: str) -> bool | None:
        why = refusal(right) or refusal(left)
        if why is None:
            return None
        refusals.append(why)
        return False

    verdict = compare(gold, prediction, refuse_or_defer)
    return verdict, refusals[0] if refusals else None
