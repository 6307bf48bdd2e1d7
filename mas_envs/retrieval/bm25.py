"""`Bm25Retriever`: word matching by bm25s, over passages wherever their sequence keeps them."""

from typing import Any

import numpy as np

from mas_envs.retrieval.encoders import words
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.protocol import Passage, Passages, RetrievalError, check_search

__all__ = ["Bm25Retriever"]


class Bm25Retriever:
    """Passages by the BM25 weight of the words they share with the query. Immutable: copies share it.

    Args:
        index: A `bm25s.BM25` over one list of words for each passage, in order.
        passages: The passages.

    Raises:
        RetrievalError: If index and passages do not belong together.
    """

    def __init__(self, index: Any, passages: Passages) -> None:  # Any: bm25s has no types
        if index.scores["num_docs"] != len(passages):
            raise RetrievalError(
                f"the index holds {index.scores['num_docs']} passages, the corpus {len(passages)}: they do not belong "
                "together; build the index again"
            )
        self.index, self.passages = index, passages

    @classmethod
    def build(cls, passages: Passages, *, k1: float = 1.5, b: float = 0.75) -> "Bm25Retriever":
        """Index all passages, titles included.

        Args:
            passages: The corpus.
            k1: How slowly repeats of a word stop counting.
            b: How much long passages are held back, in [0, 1].

        Raises:
            RetrievalError: If there are no passages.
            MissingExtraError: Without bm25s.
        """
        bm25s = need("bm25s", "Bm25Retriever")
        if not len(passages):
            raise RetrievalError("the corpus is empty; expected at least one passage")
        index = bm25s.BM25(k1=k1, b=b)
        index.index([words(passages[at].contents) for at in range(len(passages))], show_progress=False)
        return cls(index, passages)

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """At most `k` passages for each query, best first; passages without a word of the query are left out.

        Raises:
            BadArgumentError: If `queries` is not a list of str, or `k` not a whole number >= 1.
        """
        check_search(queries, k)
        return [self._search(query, min(k, len(self.passages))) for query in queries]

    def _search(self, query: str, k: int) -> list[Passage]:
        known = [word for word in words(query) if word in self.index.vocab_dict]
        if not known:
            return []
        scores = self.index.get_scores(known)
        best = np.lexsort((np.arange(len(scores)), -scores))[:k]  # equal scores in the order of the corpus
        return [self.passages[int(at)].scored(float(scores[at])) for at in best if scores[at] > 0.0]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Bm25Retriever":
        return self

    def __repr__(self) -> str:
        return f"Bm25Retriever({len(self.passages)} passages)"
