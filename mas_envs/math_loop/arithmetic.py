"""The embedded `arithmetic` task set: seeded, in five levels, with a test split that never meets the training split."""

import functools
import hashlib
import random
from collections.abc import Callable
from typing import Literal

from mas_envs.argument_checks import is_whole
from mas_envs.errors import TaskError
from mas_envs.tasks import Task, TaskSet

__all__ = ["LEVELS", "arithmetic_tasks"]

Split = Literal["train", "test"]
Problem = tuple[str, int, str]
"""Question, answer, and a key that problems share when knowing one gives away the other (`3+4`, `4+3`)."""


def _one_digit_sum(rng: random.Random) -> Problem:
    return _sum(rng.randrange(10), rng.randrange(10))


def _two_digit_sum(rng: random.Random) -> Problem:
    total = rng.randrange(100)
    left = rng.randrange(total + 1)
    return _sum(left, total - left)


def _three_digit_sum_or_difference(rng: random.Random) -> Problem:
    left, right = rng.randrange(1000), rng.randrange(1000)
    if rng.random() < 0.5:
        return _sum(left, right)
    return f"{left}-{right}", left - right, f"{left}-{right}"


def _product_or_chain(rng: random.Random) -> Problem:
    if rng.random() < 0.5:
        left, right = rng.randrange(2, 100), rng.randrange(2, 10)
        return f"{left}*{right}", left * right, _commuted(left, right, "*")
    numbers = [rng.randrange(100) for _ in range(3)]
    return "+".join(map(str, numbers)), sum(numbers), "+".join(map(str, sorted(numbers)))


def _mixed_expression(rng: random.Random) -> Problem:
    first, second = rng.randrange(2, 50), rng.randrange(2, 50)
    third, factor = rng.randrange(2, 50), rng.randrange(2, 10)
    inner, outer = _commuted(second, factor, "*"), _commuted(first, factor, "*")
    difference = f"({first}-{second})*{factor}+{third}"
    problems: list[Problem] = [
        (f"{first}+{second}*{factor}", first + second * factor, f"{first}+{inner}"),
        (f"({first}+{second})*{factor}", (first + second) * factor, f"({_commuted(first, second, '+')})*{factor}"),
        (difference, (first - second) * factor + third, difference),
        (f"{first}*{factor}-({second}-{third})", first * factor - (second - third), f"{outer}-({second}-{third})"),
    ]
    return rng.choice(problems)


def _sum(left: int, right: int) -> Problem:
    return f"{left}+{right}", left + right, _commuted(left, right, "+")


def _commuted(left: int, right: int, operator: str) -> str:
    """One spelling for `left operator right` and `right operator left`."""
    return operator.join(map(str, sorted((left, right))))


LEVELS: dict[int, Callable[[random.Random], Problem]] = {
    1: _one_digit_sum,
    2: _two_digit_sum,
    3: _three_digit_sum_or_difference,
    4: _product_or_chain,
    5: _mixed_expression,
}
"""Level -> what draws one problem: one-digit sums; sums below 100; three-digit + and -; products, chains; brackets."""


def arithmetic_tasks(
    *, level: int = 2, split: Split = "train", size: int | None = None, seed: int = 0, test_frac: float = 0.1
) -> TaskSet:
    """Arithmetic problems, all different, the same for the same arguments in every process.

    Whether a problem is a training or a test problem depends on its numbers and `seed` alone, and `3+4` goes with
    `4+3`; so the splits never overlap, whatever their sizes.

    >>> tasks = arithmetic_tasks(level=2, size=3)
    >>> [(task.question, task.answer) for task in tasks]
    [('8+7', '15'), ('9+2', '11'), ('29+26', '55')]

    Args:
        level: 1 one-digit sums; 2 sums below 100; 3 three-digit sums and differences; 4 products and three-term sums;
            5 brackets and precedence.
        split: `train` or `test`.
        size: Number of tasks; None is 4096 (train) or 256 (test), fewer where the level has no more.
        seed: Chooses the problems and the split.
        test_frac: Share of all problems that belong to the test split, in (0, 1).

    Raises:
        TaskError: If an argument is out of range, or the level has fewer than `size` problems in that split.
    """
    if not is_whole(level) or level not in LEVELS:
        raise TaskError(f"arithmetic level {level!r}: expected one of {', '.join(map(str, LEVELS))}")
    if split not in ("train", "test"):
        raise TaskError(f"arithmetic split {split!r}: expected 'train' or 'test'")
    if not isinstance(test_frac, int | float) or not 0.0 < test_frac < 1.0:
        raise TaskError(f"arithmetic test_frac={test_frac!r}: expected a share between 0 and 1")
    if size is not None and not (is_whole(size) and size >= 1):
        raise TaskError(f"arithmetic size={size!r}: expected a whole number >= 1, or None for the usual size")
    if not is_whole(seed):
        raise TaskError(f"arithmetic seed={seed!r}: expected a whole number")
    tasks = _drawn(level, split, size, seed, test_frac)
    return TaskSet(tasks, name=f"arithmetic-{level}-{split}")


@functools.lru_cache(maxsize=16)
def _drawn(level: int, split: Split, size: int | None, seed: int, test_frac: float) -> tuple[Task, ...]:
    """The problems of a set; drawn once in a process, however many environments use them."""
    wanted = size if size is not None else (4096 if split == "train" else 256)
    rng = random.Random(f"{seed}/{level}/{split}")
    problems: dict[str, int] = {}
    misses = 0
    while len(problems) < wanted and misses < 20_000:
        question, answer, key = LEVELS[level](rng)
        if question in problems or _split_of(key, seed, test_frac) != split:
            misses += 1
            continue
        misses = 0
        problems[question] = answer
    if len(problems) < (size or 1):
        raise TaskError(
            f"arithmetic level {level} has only {len(problems)} different {split} problems, not {size or 1}; "
            "lower size, or raise level or test_frac"
        )
    source = f"arithmetic-{level}"
    return tuple(Task(f"{source}/{question}", question, str(answer), source) for question, answer in problems.items())


def _split_of(key: str, seed: int, test_frac: float) -> Split:
    digest = hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < test_frac * 2**64 else "train"
