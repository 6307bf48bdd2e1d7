"""From what a user passes as `retriever=` to a retriever; the embedded encyclopedias are indexed here."""

import functools
import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.bm25 import Bm25Retriever
from mas_envs.retrieval.encoders import TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.http_client import HttpRetriever
from mas_envs.retrieval.hybrid import HybridRetriever
from mas_envs.retrieval.index_folder import open_index
from mas_envs.retrieval.index_size import default_factory, default_probes
from mas_envs.retrieval.passages import PassageStore
from mas_envs.retrieval.protocol import Passages, Retriever
from mas_envs.search.questions import Corpus, WorldTasks
from mas_envs.tasks import TaskSet

__all__ = ["RetrieverSource", "find_retriever", "stored_passages"]

RetrieverSource = Retriever | str | Path | Mapping[str, Any] | None
"""A retriever; `faiss`, `bm25` or `hybrid` over the encyclopedia the tasks ask about; a server's `http://` address;
an index folder; a mapping with `url` or `index` and further arguments of `HttpRetriever` or `open_index`; None is
`faiss`."""

_IN_MEMORY = 20_000
_FITTED_ON = 20_000


def _faiss(passages: Passages) -> Retriever:
    """An exact index, or for a large corpus one that is compressed."""
    stride = -(-len(passages) // _FITTED_ON)
    encoder = TfidfSvdEncoder().fit(passages[at] for at in range(0, len(passages), stride))
    factory = default_factory(len(passages), encoder.dim)
    return FaissRetriever.build(passages, encoder, factory=factory, num_probes=default_probes(factory))


def _hybrid(passages: Passages) -> Retriever:
    return HybridRetriever([_faiss(passages), Bm25Retriever.build(passages)])


_BUILDERS: Mapping[str, Callable[[Passages], Retriever]] = {
    "faiss": _faiss,
    "bm25": Bm25Retriever.build,
    "hybrid": _hybrid,
}

_OPENERS: Mapping[str, Callable[..., Retriever]] = {"url": HttpRetriever, "index": open_index}


def find_retriever(source: RetrieverSource, tasks: TaskSet) -> Retriever:
    """The retriever that `source` means.

    Raises:
        BadArgumentError: If it means none, or the tasks bring no encyclopedia to index.
        RetrievalError: If the server does not answer, or the folder holds no index.
        MissingExtraError: If what it needs is not installed.
    """
    name = "faiss" if source is None else source
    if isinstance(name, str) and name.startswith(("http://", "https://")):
        name = {"url": name}
    if isinstance(name, Path) or (isinstance(name, str) and name not in _BUILDERS and Path(name).is_dir()):
        name = {"index": str(Path(name).resolve())}
    if isinstance(name, Mapping):
        return _from_mapping(name)
    if isinstance(name, str):
        if name not in _BUILDERS:
            raise BadArgumentError(
                f"retriever={name!r}: expected a Retriever, one of {', '.join(_BUILDERS)}, the http:// address of a "
                "server, or an index folder that exists"
            )
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


def _from_mapping(source: Mapping[str, Any]) -> Retriever:
    kinds = [kind for kind in _OPENERS if kind in source]
    if len(kinds) != 1:
        raise BadArgumentError(f"retriever={dict(source)!r:.120}: expected either 'url' or 'index' in it")
    arguments = tuple(sorted((name, value) for name, value in source.items() if name != kinds[0]))
    try:
        return _opened(kinds[0], source[kinds[0]], arguments)
    except TypeError as error:
        known = [name for name in inspect.signature(_OPENERS[kinds[0]]).parameters][1:]
        raise BadArgumentError(
            f"retriever={dict(source)!r:.120}: cannot be used ({error}); beside {kinds[0]!r} it may have "
            f"{', '.join(known)}"
        ) from error


@functools.lru_cache(maxsize=8)
def _opened(kind: str, where: str, arguments: tuple[tuple[str, Any], ...]) -> Retriever:
    """One for all environments of a process; a server that is down is found here."""
    retriever = _OPENERS[kind](where, **dict(arguments))
    if isinstance(retriever, HttpRetriever):
        retriever.check()
    return retriever


@functools.lru_cache(maxsize=8)
def _index_of(corpus: Corpus, name: str) -> Retriever:
    """One index for all environments of a process."""
    passages = tuple(corpus.passages()) if corpus.size <= _IN_MEMORY else stored_passages(corpus, _cache_folder())
    return _BUILDERS[name](passages)


def stored_passages(corpus: Corpus, cache: Path) -> PassageStore:
    """The encyclopedia on disk, written at the first call; its folder is named after what it holds.

    Args:
        corpus: The encyclopedia.
        cache: Folder of such folders.
    """
    start = "".join(passage.contents for passage in islice(corpus.passages(), 100))
    digest = hashlib.sha256(f"{corpus.size}/{corpus.seed}/{start}".encode()).hexdigest()[:16]
    folder = cache / f"world-{corpus.size}-{digest}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            written = Path(scratch) / "world"
            PassageStore.write(corpus.passages(), written)
            if not folder.is_dir():  # another process may have been quicker
                written.rename(folder)
    return PassageStore(folder)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mas-envs"
