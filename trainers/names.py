"""Functions under short names, so that a settings file can say which one it wants."""

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from trainers.input_errors import TrainingInputError

__all__ = ["NameTable"]

Value = TypeVar("Value")


class NameTable(Generic[Value]):
    """Values by name; an unknown name is answered with the nearest known ones.

    >>> table = NameTable[int]("size")
    >>> _ = table.add("large")(3)
    >>> table["large"]
    3
    >>> table["lrage"]
    Traceback (most recent call last):
    ...
    trainers.input_errors.TrainingInputError: unknown size 'lrage'; expected one of: large; did you mean 'large'?

    Args:
        kind: What the table holds, in the singular, for messages.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._values: dict[str, Value] = {}

    def add(self, name: str) -> Callable[[Value], Value]:
        """A decorator that puts its argument into the table under `name`, and returns it unchanged.

        Raises:
            TrainingInputError: If the name is taken: nothing is ever replaced silently.
        """
        if name in self._values:
            raise TrainingInputError(
                f"the {self._kind} {name!r} exists already",
                "a name that is not taken",
                "register it under another name",
            )

        def keep(value: Value) -> Value:
            self._values[name] = value
            return value

        return keep

    def __getitem__(self, name: str) -> Value:
        """The value under `name`.

        Raises:
            TrainingInputError: If there is none; the message names the nearest.
        """
        if name in self._values:
            return self._values[name]
        near = difflib.get_close_matches(str(name), self._values, n=3, cutoff=0.5)
        raise TrainingInputError(
            f"unknown {self._kind} {name!r}",
            f"one of: {', '.join(self._values)}" if self._values else "one that is registered; none is",
            f"did you mean {' or '.join(map(repr, near))}?" if near else f"or register your own {self._kind} first",
        )

    def __delitem__(self, name: str) -> None:
        """Takes a name out again: for tests and examples, which leave no trace."""
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in the order they were added."""
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        """Whether `name` is in the table."""
        return name in self._values

    def __len__(self) -> int:
        """How many names there are."""
        return len(self._values)
