"""Encoders: from texts to vectors whose inner product says how well a passage fits a query."""

import hashlib
import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.protocol import Passage, RetrievalError

__all__ = ["Encoder", "Floats", "TfidfSvdEncoder", "words"]

Floats = NDArray[np.float32]

_WORD = re.compile(r"\w+")
_MARKS = 8
_MOST_HASHES = 1_000_000


class Encoder(Protocol):
    """Turns texts into rows of float32 that an index can hold."""

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def encode_queries(self, queries: Sequence[str]) -> Floats:
        """[N, dim], rows of length 1."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> Floats:
        """[N, dim], rows of length 1."""
        ...


def words(text: str) -> list[str]:
    """The words of a text in lower case; numbers are words, punctuation is not.

    >>> words("Ana Belun's mentor, 1843")
    ['ana', 'belun', 's', 'mentor', '1843']
    """
    return _WORD.findall(text.lower())


class TfidfSvdEncoder:
    """Weighted word counts in few dimensions, fitted on the corpus; needs no download and is the same everywhere.

    The first dimensions are a truncated SVD of the TF-IDF matrix: what passages have in common. A low rank cannot keep
    thousands of rare names apart, so a vocabulary larger than that rank also gets a sketch: every word adds a few
    hashed signs, seen in the fit or not. Words of the title count several times.

    Args:
        svd_dim: Most dimensions of the SVD.
        sketch_dim: Dimensions of the sketch; used only when the SVD cannot hold all words.
        title_weight: How often the words of a title count; >= 1.
        max_words: Words that take part in the SVD, the most frequent ones.
        seed: Of the random start of the SVD, and of the hashes.

    Raises:
        BadArgumentError: If an argument is out of range.
        MissingExtraError: Without scipy.
    """

    def __init__(
        self,
        *,
        svd_dim: int = 128,
        sketch_dim: int = 256,
        title_weight: int = 2,
        max_words: int = 20_000,
        seed: int = 0,
    ) -> None:
        for name, value, least in (
            ("svd_dim", svd_dim, 1),
            ("sketch_dim", sketch_dim, _MARKS),
            ("title_weight", title_weight, 1),
            ("max_words", max_words, 1),
        ):
            if value < least:
                raise BadArgumentError(f"{name}={value!r}: expected a whole number >= {least}")
        self._sparse = need("scipy.sparse", "the TF-IDF encoder")
        self.svd_dim, self.sketch_dim, self.title_weight, self.max_words = svd_dim, sketch_dim, title_weight, max_words
        self.seed = seed
        self._idf: dict[str, float] = {}
        self._unseen_idf = 1.0
        self._column: dict[str, int] = {}
        self._axes: Floats = np.zeros((0, 0), np.float32)
        self._has_sketch = True
        self._hashes: dict[str, tuple[int, ...]] = {}

    @property
    def dim(self) -> int:
        """Length of a vector; known after `fit`."""
        return int(self._axes.shape[1]) + (self.sketch_dim if self._has_sketch else 0)

    def fit(self, passages: Iterable[Passage]) -> "TfidfSvdEncoder":
        """Learn word weights and axes from a corpus, or from a sample of one that is large; returns itself.

        Raises:
            RetrievalError: If there is no word in the passages.
        """
        counts = [self._passage_counts(passage) for passage in passages]
        frequency = Counter(word for count in counts for word in count)
        if not frequency:
            raise RetrievalError("the TF-IDF encoder was given no words to fit on; check the corpus")
        num = len(counts)
        self._idf = {word: math.log((1 + num) / (1 + df)) + 1.0 for word, df in frequency.items()}
        self._unseen_idf = math.log(1 + num) + 1.0
        ranked = sorted(frequency, key=lambda word: (-frequency[word], word))
        self._column = {word: index for index, word in enumerate(ranked[: self.max_words])}
        self._has_sketch = len(ranked) > self.svd_dim
        self._axes = self._principal_axes(self._matrix(*self._entries(counts), len(counts)))
        return self

    def encode_queries(self, queries: Sequence[str]) -> Floats:
        """[N, dim] float32 of length 1; a query without words gives zeros."""
        return self._encode([Counter(words(query)) for query in queries])

    def encode_passages(self, passages: Sequence[Passage]) -> Floats:
        """[N, dim] float32 of length 1."""
        return self._encode([self._passage_counts(passage) for passage in passages])

    def save(self, folder: Path) -> None:
        """Write what was fitted into `folder`, which must exist."""
        settings = {
            "svd_dim": self.svd_dim,
            "sketch_dim": self.sketch_dim,
            "title_weight": self.title_weight,
            "max_words": self.max_words,
            "seed": self.seed,
        }
        fitted = {"settings": settings, "idf": self._idf, "unseen_idf": self._unseen_idf, "columns": list(self._column)}
        (folder / "tfidf.json").write_text(json.dumps({**fitted, "has_sketch": self._has_sketch}), encoding="utf-8")
        np.save(folder / "tfidf_axes.npy", self._axes)

    @classmethod
    def load(cls, folder: Path) -> "TfidfSvdEncoder":
        """The encoder that `save` wrote.

        Raises:
            RetrievalError: If the folder holds none.
        """
        try:
            fitted = json.loads((folder / "tfidf.json").read_text(encoding="utf-8"))
            axes = np.load(folder / "tfidf_axes.npy", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise RetrievalError(f"{folder}: holds no TF-IDF encoder ({error}); build the index again") from error
        encoder = cls(**fitted["settings"])
        encoder._idf, encoder._unseen_idf = fitted["idf"], fitted["unseen_idf"]
        encoder._column = {word: index for index, word in enumerate(fitted["columns"])}
        encoder._axes, encoder._has_sketch = axes, fitted["has_sketch"]
        return encoder

    def _passage_counts(self, passage: Passage) -> "Counter[str]":
        counts = Counter(words(passage.text))
        for word in words(passage.title):
            counts[word] += self.title_weight
        return counts

    def _weights(self, counts: "Counter[str]") -> dict[str, float]:
        """Word -> weight; the vector has length 1."""
        raw = {word: (1.0 + math.log(n)) * self._idf.get(word, self._unseen_idf) for word, n in counts.items()}
        length = math.sqrt(sum(value * value for value in raw.values()))
        return {word: value / length for word, value in raw.items()}

    def _entries(self, counts: Sequence["Counter[str]"]) -> tuple[list[str], NDArray[np.int64], Floats]:
        """Word, row and weight of every word of every text."""
        weighted = [self._weights(count) for count in counts]
        every = [word for weights in weighted for word in weights]
        rows = np.repeat(np.arange(len(weighted)), [len(weights) for weights in weighted])
        return every, rows, np.array([value for weights in weighted for value in weights.values()], np.float32)

    def _matrix(self, every: Sequence[str], rows: NDArray[np.int64], values: Floats, num_rows: int) -> Any:
        """Sparse [N, V] of the words that have an axis."""
        columns = np.array([self._column.get(word, -1) for word in every], np.int64)
        kept = columns >= 0
        shape = (num_rows, len(self._column))
        return self._sparse.csr_matrix((values[kept], (rows[kept], columns[kept])), shape=shape)

    def _principal_axes(self, matrix: Any) -> Floats:
        """[V, svd_dim]: the leading right singular vectors, by randomised subspace iteration."""
        rank = min(self.svd_dim, *matrix.shape)
        generator = np.random.default_rng(self.seed)
        width = min(rank + 10, *matrix.shape)
        basis = generator.standard_normal((matrix.shape[1], width)).astype(np.float32)
        for _ in range(4):
            basis, _ = np.linalg.qr(matrix.T @ (matrix @ basis))
        _, _, right = np.linalg.svd(matrix @ basis, full_matrices=False)
        return np.ascontiguousarray((basis @ right.T)[:, :rank], dtype=np.float32)

    def _encode(self, counts: Sequence["Counter[str]"]) -> Floats:
        every, rows, values = self._entries(counts)
        vectors = np.asarray(self._matrix(every, rows, values, len(counts)) @ self._axes, np.float32)
        if self._has_sketch:
            marks = np.array([self._marks(word) for word in every], np.int64).reshape(-1, _MARKS)
            signed = np.where(marks & 1, values[:, None], -values[:, None]) / np.float32(_MARKS**0.5)
            sketch = np.zeros((len(counts), self.sketch_dim), np.float32)
            np.add.at(sketch, (np.repeat(rows, _MARKS), (marks >> 1).ravel() % self.sketch_dim), signed.ravel())
            vectors = np.concatenate([vectors, sketch], axis=1)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0.0, lengths, 1.0)
        return vectors

    def _marks(self, word: str) -> tuple[int, ...]:
        """Where a word stands in the sketch and with which signs, as hashes; the same in every process."""
        marks = self._hashes.get(word)
        if marks is None:
            if len(self._hashes) > _MOST_HASHES:
                self._hashes.clear()
            digest = hashlib.blake2b(f"{self.seed}/{word}".encode(), digest_size=4 * _MARKS).digest()
            marks = self._hashes[word] = struct.unpack(f">{_MARKS}I", digest)
        return marks
