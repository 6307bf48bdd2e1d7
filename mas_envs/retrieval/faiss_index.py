"""`FaissRetriever`: vectors in a faiss index of any kind, passages wherever their sequence keeps them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.encoders import Encoder, Floats
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.protocol import Passage, Passages, RetrievalError, check_search

__all__ = ["FaissRetriever", "exact_nearest", "new_index"]

_BATCH = 4096
_FEWEST_FOR_BLAS = 4
_ROWS_AT_A_TIME = 32_768
_REFINED = 64
"""Candidates of a coarse index, for each passage wanted, whose finer codes are looked at."""
_EXPLORED = 128
"""Nodes of an HNSW graph that a search keeps in view."""


class FaissRetriever:
    """Nearest passages by inner product. Immutable: copies of an environment share it.

    Args:
        index: A faiss index that holds one vector for each passage, in order.
        passages: The passages.
        encoder: What made the vectors.
        num_probes: Lists of an IVF index that are looked through; None leaves the index's own.

    Raises:
        RetrievalError: If index, passages and encoder do not belong together.
        BadArgumentError: If `num_probes` is not a whole number >= 1.
        MissingExtraError: Without faiss.
    """

    def __init__(
        self,
        index: Any,  # Any: faiss has no types
        passages: Passages,
        encoder: Encoder,
        *,
        num_probes: int | None = None,
    ) -> None:
        self._faiss = need("faiss", "FaissRetriever")
        if index.ntotal != len(passages):
            raise RetrievalError(
                f"the index holds {index.ntotal} vectors, the corpus {len(passages)} passages: they do not belong "
                "together; build the index again"
            )
        if index.d != encoder.dim:
            raise RetrievalError(
                f"the index holds vectors of {index.d} dimensions, the encoder makes {encoder.dim}: they do not belong "
                "together; use the encoder the index was built with"
            )
        if num_probes is not None:
            if not is_whole(num_probes) or num_probes < 1:
                raise BadArgumentError(f"num_probes={num_probes!r}: expected a whole number >= 1, or None")
            try:
                self._faiss.ParameterSpace().set_index_parameter(index, "nprobe", num_probes)
            except RuntimeError as error:
                raise BadArgumentError(
                    f"num_probes={num_probes!r}: only an index with lists, such as 'IVF1024,PQ48np', looks through "
                    "some of them; leave it None"
                ) from error
        self.index, self.passages, self.encoder = index, passages, encoder
        self._flat: Floats | None = None
        if isinstance(index, self._faiss.IndexFlat) and index.metric_type == self._faiss.METRIC_INNER_PRODUCT:
            self._flat = self._faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(-1, index.d)

    @classmethod
    def build(
        cls,
        passages: Passages,
        encoder: Encoder,
        *,
        factory: str = "Flat",
        num_probes: int | None = None,
        train_size: int = 100_000,
    ) -> "FaissRetriever":
        """Encode all passages into a new index.

        Args:
            passages: The corpus.
            encoder: Fitted already.
            factory: What faiss calls an index, such as `Flat`, `HNSW32` or `PQ192x4fs,Refine(SQ8)`.
            num_probes: See the class.
            train_size: Vectors that an index with a training phase is trained on; spread evenly over the corpus.

        Raises:
            BadArgumentError: If faiss does not know the factory string or cannot train it on so few passages.
            RetrievalError: If there are no passages.
        """
        if not len(passages):
            raise RetrievalError("the corpus is empty; expected at least one passage")
        stride = max(1, len(passages) // train_size)
        index = new_index(
            encoder.dim,
            factory,
            len(passages),
            lambda: encoder.encode_passages([passages[i] for i in range(0, len(passages), stride)]),
        )
        for start in range(0, len(passages), _BATCH):
            index.add(encoder.encode_passages(_slice(passages, start, start + _BATCH)))
        return cls(index, passages, encoder, num_probes=num_probes)

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """At most `k` passages for each query, best first; fewer when the index finds no more.

        Raises:
            BadArgumentError: If `queries` is not a list of str, or `k` not a whole number >= 1.
        """
        check_search(queries, k)
        if not queries:
            return []
        vectors = np.ascontiguousarray(self.encoder.encode_queries(queries), dtype=np.float32)
        scores, positions = self._nearest(vectors, min(k, len(self.passages)))
        return [
            [self.passages[int(at)].scored(float(score)) for score, at in zip(*row, strict=True) if at >= 0]
            for row in zip(scores, positions, strict=True)
        ]

    def _nearest(self, vectors: Floats, k: int) -> tuple[Floats, NDArray[np.int64]]:
        """[N, k] scores and positions, best first; position -1 where the index finds no more."""
        if self._flat is not None and len(vectors) >= _FEWEST_FOR_BLAS:
            return exact_nearest(self._flat, vectors, k)
        scores, positions = self.index.search(vectors, k)
        return scores, positions

    def __deepcopy__(self, memo: dict[int, Any]) -> "FaissRetriever":
        return self

    def __repr__(self) -> str:
        return f"FaissRetriever({len(self.passages)} passages, {self.index.d} dimensions)"


def new_index(dim: int, factory: str, num_passages: int, training: Callable[[], Floats]) -> Any:  # Any: no types
    """An index without vectors yet, trained where its kind has a training phase.

    Args:
        dim: Length of a vector.
        factory: What faiss calls the kind of index.
        num_passages: What it will hold, for the error.
        training: Gives [N, dim] vectors to train on; called only if need be.

    Raises:
        BadArgumentError: If faiss does not know the factory string or cannot train it on so few passages.
        MissingExtraError: Without faiss.
    """
    faiss = need("faiss", "FaissRetriever")
    try:
        index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(training())
        if hasattr(index, "k_factor"):
            index.k_factor = _REFINED
        if hasattr(index, "hnsw"):
            index.hnsw.efSearch = _EXPLORED
    except RuntimeError as error:
        raise BadArgumentError(
            f"factory={factory!r}: faiss cannot make it over {num_passages} passages of {dim} dimensions "
            f"({error}); try 'Flat'"
        ) from error
    return index


def exact_nearest(vectors: Floats, queries: Floats, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """[Q, k] largest inner products and their positions, best first; equal ones in the order of `vectors`.

    Several queries at once are several times quicker this way than in faiss, whose own matrix product is slow.

    Args:
        vectors: [N, D].
        queries: [Q, D].
        k: At most N.
    """
    best = np.full((len(queries), 0), 0, np.int64)
    best_scores = np.zeros((len(queries), 0), np.float32)
    for start in range(0, len(vectors), _ROWS_AT_A_TIME):
        scores = queries @ vectors[start : start + _ROWS_AT_A_TIME].T
        kept = min(k, scores.shape[1])
        top = np.argpartition(scores, scores.shape[1] - kept, axis=1)[:, scores.shape[1] - kept :]
        best = np.concatenate([best, top + start], axis=1)
        best_scores = np.concatenate([best_scores, np.take_along_axis(scores, top, 1)], axis=1)
    order = np.lexsort((best, -best_scores), axis=1)[:, :k]
    return np.take_along_axis(best_scores, order, 1), np.take_along_axis(best, order, 1)


def _slice(passages: Passages, start: int, stop: int) -> list[Passage]:
    return [passages[index] for index in range(start, min(stop, len(passages)))]
