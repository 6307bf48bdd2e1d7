"""`HybridRetriever`: several retrievers in one, their answers fused by reciprocal ranks."""

from collections.abc import Sequence
from typing import Any

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.protocol import Passage, Retriever, check_search

__all__ = ["HybridRetriever"]


class HybridRetriever:
    """Passages by the sum of 1 / (`offset` + rank) over retrievers; scores of different kinds need not compare.

    Source: Cormack, Clarke and Buettcher, reciprocal rank fusion, SIGIR 2009; differs in: nothing.

    Args:
        retrievers: At least two over the same corpus; passages are the same when their ids are.
        offset: The constant of the formula, > 0; large values make ranks count more alike.
        depth: Passages asked of each retriever; at least what `search` is asked for.

    Raises:
        BadArgumentError: If an argument is out of range.
    """

    def __init__(self, retrievers: Sequence[Retriever], *, offset: float = 60.0, depth: int = 50) -> None:
        if len(retrievers) < 2:
            raise BadArgumentError(f"retrievers: expected at least two, got {len(retrievers)}; use the one as it is")
        if not offset > 0.0:
            raise BadArgumentError(f"offset={offset!r}: expected a number > 0")
        if not is_whole(depth) or depth < 1:
            raise BadArgumentError(f"depth={depth!r}: expected a whole number >= 1")
        self.retrievers, self.offset, self.depth = tuple(retrievers), offset, depth

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """At most `k` passages for each query, best first; equal sums in the order the first retriever has them.

        Raises:
            BadArgumentError: If `queries` is not a list of str, or `k` not a whole number >= 1.
            RetrievalError: If one of the retrievers failed.
        """
        check_search(queries, k)
        answers = [retriever.search(queries, max(k, self.depth)) for retriever in self.retrievers]
        return [self._fused(rankings, k) for rankings in zip(*answers, strict=True)]

    def _fused(self, rankings: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
        totals: dict[str, float] = {}
        passages: dict[str, Passage] = {}
        for ranking in rankings:
            for rank, passage in enumerate(ranking, start=1):
                passages.setdefault(passage.id, passage)
                totals[passage.id] = totals.get(passage.id, 0.0) + 1.0 / (self.offset + rank)
        best = sorted(totals, key=lambda id: -totals[id])[:k]
        return [passages[id].scored(totals[id]) for id in best]

    def __deepcopy__(self, memo: dict[int, Any]) -> "HybridRetriever":
        return self

    def __repr__(self) -> str:
        return f"HybridRetriever({', '.join(map(repr, self.retrievers))})"
