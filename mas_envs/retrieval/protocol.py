"""What every retriever offers: `search(queries, k)`, passages, and the error that says that it failed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError, MasEnvsError

__all__ = ["Passage", "Passages", "RetrievalError", "Retriever", "check_search", "search_checked"]


class RetrievalError(MasEnvsError, RuntimeError):
    """A search that failed: the retriever is down, slow, or sent something else than passages."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of text that can be found."""

    id: str
    """Unique in its corpus."""
    title: str
    """Title of the article it belongs to; several passages may share it."""
    text: str
    """What it says, without the title."""
    score: float = 0.0
    """How well it fits the query; comes from the retriever and compares within one of its answers only."""

    @property
    def contents(self) -> str:
        """Title and text in the wiki-18 layout: the quoted title, a line break, the text."""
        return f'"{self.title}"\n{self.text}'

    @classmethod
    def from_contents(cls, id: str, contents: str, score: float = 0.0) -> "Passage":
        r"""A passage from the wiki-18 layout; a first line without quotes counts as title all the same.

        >>> Passage.from_contents("7", '"Paris"\nA city on the Seine.').title
        'Paris'
        """
        title, _, text = contents.partition("\n")
        if len(title) >= 2 and title[0] == title[-1] == '"':
            title = title[1:-1]
        return cls(id, title, text, score)

    def scored(self, score: float) -> "Passage":
        """The same passage with another score."""
        return replace(self, score=score)


class Passages(Protocol):
    """Passages by position: a tuple in memory, or a `PassageStore` on disk."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __getitem__(self, index: int, /) -> Passage:
        """The passage at a position."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Finds passages for queries, best first."""

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """At most `k` passages for each query, best first.

        Raises:
            RetrievalError: If the search failed.
        """
        ...


def search_checked(retriever: Retriever, query: str, k: int) -> tuple[Passage, ...]:
    """At most `k` passages for one query; whatever goes wrong in the retriever comes out as one kind of error.

    Raises:
        RetrievalError: If the retriever raised, or returned something else than passages.
    """
    try:
        results = retriever.search([query], k)
    except Exception as error:  # a retriever is foreign code, often a network away
        raise RetrievalError(f"the retriever failed ({type(error).__name__}: {error})"[:500]) from error
    found = results[0] if isinstance(results, list) and len(results) == 1 else None
    if not isinstance(found, Sequence) or not all(isinstance(passage, Passage) for passage in found):
        raise RetrievalError(f"the retriever returned {results!r:.120}; expected one list of passages for one query")
    return tuple(found[:k])


def check_search(queries: object, k: object) -> None:
    """Refuse arguments of `search` that no retriever can use.

    Raises:
        BadArgumentError: If `queries` is not a list of str, or `k` not a whole number >= 1.
    """
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise BadArgumentError(f"queries={queries!r:.80}: expected a list of str")
    if not is_whole(k) or k < 1:  # type: ignore[operator]  # is_whole says that it compares
        raise BadArgumentError(f"k={k!r}: expected a whole number >= 1")
