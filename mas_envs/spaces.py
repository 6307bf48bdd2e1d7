"""Spaces for text: any Unicode string, and tuples of chat messages."""

import string
from typing import Any, TypedDict

from gymnasium import spaces

__all__ = ["Message", "Observation", "UnicodeText", "messages_space"]


class Message(TypedDict):
    """One chat message, in the layout that chat templates take."""

    role: str
    content: str


class Observation(TypedDict):
    """What an agent is shown: the chat so far, as a tuple that cannot be changed."""

    messages: tuple[Message, ...]


class UnicodeText(spaces.Text):
    r"""Every `str` of min_length to max_length code points; samples are short printable ASCII.

    Gymnasium's own `Text` rejects spaces, LaTeX and accents by default, checks character by character and samples
    differently in each process; this one checks the length only, and equal seeds give equal samples everywhere.

    >>> space = UnicodeText(100)
    >>> "x² is fine: \boxed{4}" in space, "" in space, 4 in space
    (True, True, False)

    Args:
        max_length: Most code points.
        min_length: Fewest code points.
        sample_length: Samples have at most this many characters.
        seed: Seed of the sampler.
    """

    def __init__(
        self, max_length: int, *, min_length: int = 0, sample_length: int = 64, seed: int | None = None
    ) -> None:
        self.sample_length = sample_length
        super().__init__(max_length, min_length=min_length, charset=string.printable, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed numeric form."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string of a permitted length."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random printable string, at most `sample_length` long unless a mask asks for another length."""
        if mask is None and probability is None:
            longest = max(self.min_length, min(self.max_length, self.sample_length))
            mask = (int(self.np_random.integers(self.min_length, longest + 1)), None)
        return str(super().sample(mask=mask, probability=probability))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and (self.min_length, self.max_length) == (
            other.min_length,
            other.max_length,
        )

    __hash__ = None  # type: ignore[assignment]  # spaces are mutable: they carry a generator

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"


def messages_space(max_length: int, *, seed: int | None = None) -> spaces.Dict:
    """The space of observations `{"messages": (message, ...)}`, each content at most `max_length` code points."""
    message = spaces.Dict({"role": UnicodeText(32, min_length=1), "content": UnicodeText(max_length)})
    return spaces.Dict({"messages": spaces.Sequence(message)}, seed=seed)
