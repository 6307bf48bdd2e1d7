"""Row ids as small integers, and means and deviations of the rows that share one."""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.input_errors import TrainingInputError

__all__ = ["Coding", "Flags", "Floats", "Ids", "Ints", "Moments", "encode", "moments", "pair"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Ids = Sequence[Hashable] | NDArray[Any]  # Any: integers, strings or objects


@dataclass(frozen=True, slots=True, eq=False)
class Coding:
    """Which class each row belongs to."""

    codes: Ints
    """[R], each in [0, size); equal for rows of the same class."""
    size: int
    """Number of codes; some may be unused."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Statistics of every class of a coding; classes without a sample hold zeros."""

    count: Ints
    """[K] samples."""
    mean: Floats
    """[K]; exactly the common value where all samples of a class are equal."""
    std: Floats
    """[K]; exactly 0 where all samples are equal, also for a single one."""


def encode(ids: Ids, name: str, num_rows: int) -> tuple[Coding, list[Hashable]]:
    """The coding of a sequence of ids, and the id behind each code.

    Ids are compared by value and never joined to strings, so `("q_1", "x")` and `("q", "1_x")` stay apart.

    >>> coding, labels = encode([("a", 1), "b", ("a", 1)], "groups", 3)
    >>> coding.codes, labels
    (array([0, 1, 0]), [('a', 1), 'b'])

    Args:
        ids: [R] hashable values of any kind, mixed kinds included, or a one-dimensional array.
        name: What the ids are, for messages.
        num_rows: R.

    Returns:
        The coding, and its labels [K].

    Raises:
        TrainingInputError: If the ids are not a flat sequence of `num_rows` hashable values, or one of them is NaN.
    """
    values = _flat(ids, name, num_rows)
    if isinstance(values, np.ndarray):
        coding, numbers = _encode_integers(values)
        return coding, list(numbers)
    index: defaultdict[Hashable, int] = defaultdict(itertools.count().__next__)  # a new id gets the next code
    try:
        codes = np.fromiter(map(index.__getitem__, values), dtype=np.int64, count=num_rows)
    except TypeError as err:
        raise TrainingInputError(
            f"{name} holds an id that cannot be hashed ({err})", "strings, numbers or tuples", f"convert {name} first"
        ) from err
    if any(label != label for label in index):
        raise TrainingInputError(f"{name} holds a NaN", "an id for every row", f"name the missing entries of {name}")
    return Coding(codes, len(index)), list(index)


def _flat(ids: Ids, name: str, num_rows: int) -> list[Hashable] | Ints:
    """The ids as an integer array where they are one, else as a list; checks shape and length."""
    if isinstance(ids, str | bytes):
        raise TrainingInputError(f"{name} is the text {ids!r}", "a sequence, one id per row", f"pass [{ids!r}, ...]")
    values: list[Hashable] | Ints
    if hasattr(ids, "__array__"):
        array = np.asarray(ids)
        if array.ndim != 1:
            raise TrainingInputError(
                f"{name} has the shape {array.shape}", "one dimension, one id per row", f"flatten {name}"
            )
        values = array.astype(np.int64) if array.dtype.kind == "i" else array.tolist()
    else:
        values = list(ids)
    if len(values) != num_rows:
        raise TrainingInputError(
            f"{name} has {len(values)} entries for {num_rows} rewards",
            "one entry per row in every argument",
            f"build {name} from the same list of turns as the rewards",
        )
    return values


def _encode_integers(values: Ints) -> tuple[Coding, list[int]]:
    if values.size == 0:
        return Coding(values, 0), []
    low, high = int(values.min()), int(values.max())
    if high - low >= 4 * values.size + 1024:
        labels, codes = np.unique(values, return_inverse=True)
        return Coding(codes.astype(np.int64), labels.size), labels.tolist()
    present = np.zeros(high - low + 1, dtype=np.bool_)
    present[values - low] = True
    rank = np.cumsum(present) - 1
    return Coding(rank[values - low], int(present.sum())), (np.flatnonzero(present) + low).tolist()


def pair(first: Coding, second: Coding) -> Coding:
    """The coding whose classes are the pairs of classes of two codings.

    >>> pair(Coding(np.array([0, 0, 1]), 2), Coding(np.array([0, 1, 0]), 2)).codes
    array([0, 1, 2])
    """
    num_rows = first.codes.size
    if first.size * second.size <= 4 * num_rows:
        return Coding(first.codes * second.size + second.codes, first.size * second.size)
    owner = np.zeros(second.size, dtype=np.int64)
    owner[second.codes] = first.codes
    if np.array_equal(owner[second.codes], first.codes):  # rollouts inside groups: the second id says it all
        return second
    labels, codes = np.unique(first.codes * np.int64(second.size) + second.codes, return_inverse=True)
    return Coding(codes.astype(np.int64), labels.size)


def moments(values: Floats, coding: Coding, *, ddof: int) -> Moments:
    """Count, mean and standard deviation of each class, in two passes.

    Samples are measured from the first of their class, so that equal ones give exactly their value and exactly 0,
    without any rounding: eight times 0.9 has the mean 0.9 and the deviation 0.0.

    >>> moments(np.full(3, 0.9), Coding(np.zeros(3, dtype=np.int64), 1), ddof=1)
    Moments(count=array([3]), mean=array([0.9]), std=array([0.]))

    Args:
        values: [S] float64.
        coding: The class of each sample.
        ddof: The divisor of the variance is the count less this.
    """
    codes, size = coding.codes, coding.size
    count = np.bincount(codes, minlength=size)
    divisor = np.maximum(count, 1)
    first = np.zeros(size)
    first[codes[::-1]] = values[::-1]
    offset = values - first[codes]
    shift = np.bincount(codes, weights=offset, minlength=size) / divisor
    residual = offset - shift[codes]
    square = np.bincount(codes, weights=residual * residual, minlength=size)
    std = np.sqrt(square / np.maximum(count - ddof, 1))
    return Moments(count, first + shift, std)
