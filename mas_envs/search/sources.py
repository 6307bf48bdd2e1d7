"""From what a user passes as `retriever=` to a retriever; the embedded encyclopedias are indexed here."""

import functools
from collections.abc import Callable, Mapping

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.bm25 import Bm25Retriever
from mas_envs.retrieval.encoders import TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.hybrid import HybridRetriever
from mas_envs.retrieval.protocol import Passage, Retriever
from mas_envs.search.questions import Corpus, WorldTasks
from mas_envs.tasks import TaskSet

__all__ = ["RetrieverSource", "find_retriever"]

RetrieverSource = Retriever | str | None
"""A retriever; `faiss`, `bm25` or `hybrid` over the encyclopedia the tasks ask about; None is `faiss`."""


def _faiss(passages: tuple[Passage, ...]) -> Retriever:
    return FaissRetriever.build(passages, TfidfSvdEncoder().fit(passages))


def _hybrid(passages: tuple[Passage, ...]) -> Retriever:
    return HybridRetriever([_faiss(passages), Bm25Retriever.build(passages)])


_BUILDERS: Mapping[str, Callable[[tuple[Passage, ...]], Retriever]] = {
    "faiss": _faiss,
    "bm25": Bm25Retriever.build,
    "hybrid": _hybrid,
}


def find_retriever(source: RetrieverSource, tasks: TaskSet) -> Retriever:
    """The retriever that `source` means.

    Raises:
        BadArgumentError: If it means none, or the tasks bring no encyclopedia to index.
        MissingExtraError: If what it needs is not installed.
    """
    name = "faiss" if source is None else source
    if isinstance(name, str):
        if name not in _BUILDERS:
            raise BadArgumentError(f"retriever={name!r}: expected a Retriever, or one of {', '.join(_BUILDERS)}")
        if not isinstance(tasks, WorldTasks):
            raise BadArgumentError(
                f"retriever={source!r}: the tasks {tasks.name!r} bring no passages to search in; pass a Retriever over "
                "the corpus they ask about, or use tasks='world'"
            )
        return _index_of(tasks.corpus, name)
    if not callable(getattr(name, "search", None)):
        raise BadArgumentError(f"retriever={name!r:.80}: expected an object with search(queries, k), or a name")
    retriever: Retriever = name
    return retriever


@functools.lru_cache(maxsize=8)
def _index_of(corpus: Corpus, name: str) -> Retriever:
    """One index for all environments of a process."""
    return _BUILDERS[name](tuple(corpus.passages()))
