"""Which faiss index suits a corpus, and how large it becomes: known before anything is built."""

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.optional_packages import need

__all__ = ["bytes_per_passage", "default_factory", "default_probes", "human_bytes"]

_EXACT = 100_000
_ID_BYTES = 8
_GRAPH_LINK_BYTES = 4


def default_factory(num_passages: int, dim: int) -> str:
    """What faiss calls a fitting index: exact for a small corpus, short codes that are all looked at for a large one.

    Lists (`IVF`) and graphs (`HNSW`) lose most of what is asked for where vectors do not cluster, as word counts do
    not: `benchmarks/retrieval.py --factories` shows it.

    >>> default_factory(5_000, 384), default_factory(1_000_000, 384)
    ('Flat', 'PQ192x4fs,Refine(SQ8)')
    """
    if num_passages <= _EXACT:
        return "Flat"
    width = next(width for width in range(2, dim + 1) if dim % width == 0) if dim > 1 else 1
    return f"PQ{dim // width}x4fs,Refine(SQ8)"


def default_probes(factory: str) -> int | None:
    """Lists of a default index to look through; None for an index without lists.

    >>> default_probes("IVF4000,PQ96"), default_probes("Flat")
    (64, None)
    """
    return 64 if "IVF" in factory else None


def bytes_per_passage(factory: str, dim: int) -> int:
    """Bytes one vector takes in an index of this kind; lists and codebooks, which do not grow, are left out.

    >>> bytes_per_passage("Flat", 384), bytes_per_passage("IVF4000,PQ96", 384)
    (1536, 106)

    Raises:
        BadArgumentError: If faiss does not know the factory string.
        MissingExtraError: Without faiss.
    """
    faiss = need("faiss", "an index")
    try:
        index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise BadArgumentError(
            f"factory={factory!r}: faiss cannot make it in {dim} dimensions ({reason}); try 'Flat', 'HNSW32' or "
            f"{default_factory(1_000_000, dim)!r}"
        ) from error
    links = 0
    base = faiss.downcast_index(index)
    if hasattr(base, "hnsw"):
        links = _GRAPH_LINK_BYTES * base.hnsw.nb_neighbors(0)
        base = faiss.downcast_index(base.storage)
    try:
        code = base.sa_code_size()
    except RuntimeError:  # a kind that has no plain codes: as much as the vector itself is the safe guess
        code = 4 * dim
    return int(code) + links + (_ID_BYTES if hasattr(base, "nlist") else 0)


def human_bytes(num_bytes: float) -> str:
    """A size for people.

    >>> human_bytes(1536), human_bytes(13.9e9)
    ('1.5 kB', '13.9 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000.0:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000.0
    return f"{num_bytes:.1f} TB"
