"""An index on disk: one folder with passages, vectors, what encoded them, and a manifest that ties them together."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mas_envs.retrieval.corpus_file import file_sha256
from mas_envs.retrieval.encoders import Encoder, TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.passages import PassageStore
from mas_envs.retrieval.protocol import RetrievalError
from mas_envs.retrieval.sentence_encoder import SentenceEncoder

__all__ = ["INDEX_FILE", "FileRecord", "Manifest", "load_encoder", "open_index", "read_manifest", "write_manifest"]

INDEX_FILE = "index.faiss"
_MANIFEST = "manifest.json"
_FORMAT = 1
_ALWAYS_HASHED = 64 << 20


@dataclass(frozen=True)
class FileRecord:
    """What a file of the folder was when it was written."""

    num_bytes: int
    """Its size."""
    sha256: str
    """Its hash, in hex."""


@dataclass(frozen=True)
class Manifest:
    """What an index folder holds and how it was made."""

    corpus: str
    """Path of the corpus it was built from."""
    num_passages: int
    """Passages, and vectors."""
    encoder: str
    """`tfidf`, or the folder or hub name of a sentence encoder."""
    dim: int
    """Length of a vector."""
    factory: str
    """What faiss calls this kind of index."""
    num_probes: int | None
    """Lists that a search looks through; None for an index without lists."""
    files: Mapping[str, FileRecord]
    """File name -> size and hash."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest in one stroke; from then on the folder is an index."""
    scratch = folder / f"{_MANIFEST}.tmp"
    scratch.write_text(json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1), encoding="utf-8")
    os.replace(scratch, folder / _MANIFEST)


def read_manifest(folder: Path | str) -> Manifest:
    """What an index folder says about itself.

    Raises:
        RetrievalError: If the folder is no index, an unfinished one, or of another format.
    """
    path = Path(folder) / _MANIFEST
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if raw.pop("format") != _FORMAT:
            raise ValueError(f"another format than {_FORMAT}")
        files = {name: FileRecord(**record) for name, record in raw.pop("files").items()}
        return Manifest(**raw, files=files)
    except FileNotFoundError as error:
        unfinished = (Path(folder) / "building.json").is_file()
        advice = (
            "its building was stopped: run the same `mas-envs index build` again, it goes on where it was"
            if unfinished
            else "make one with `mas-envs index build CORPUS --out DIR`"
        )
        raise RetrievalError(f"{folder}: holds no finished index; {advice}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RetrievalError(f"{path}: cannot be used ({error}); build the index again") from error


def open_index(
    folder: Path | str, *, num_probes: int | None = None, memory_map: bool = True, verify: bool = False
) -> FaissRetriever:
    """The retriever over an index folder.

    Args:
        folder: What `mas-envs index build` made.
        num_probes: Lists that a search looks through; None takes the manifest's.
        memory_map: Whether the index stays on disk and only what is looked at comes into memory.
        verify: Whether large files are hashed too; small ones always are.

    Raises:
        RetrievalError: If the folder is no finished index, or its files are not those it was built with.
        MissingExtraError: Without faiss.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        _check_file(folder / name, record, verify)
    faiss = need("faiss", "an index")
    flags = faiss.IO_FLAG_MMAP_IFC if memory_map else 0
    try:
        index = faiss.read_index(str(folder / INDEX_FILE), flags)
    except RuntimeError as error:
        raise RetrievalError(f"{folder / INDEX_FILE}: faiss cannot read it; build the index again") from error
    probes = manifest.num_probes if num_probes is None else num_probes
    return FaissRetriever(index, PassageStore(folder), load_encoder(folder, manifest.encoder), num_probes=probes)


def load_encoder(folder: Path, name: str) -> Encoder:
    """The encoder of an index folder: `tfidf` as fitted there, anything else by folder or hub name.

    Raises:
        RetrievalError: If it cannot be loaded.
    """
    return TfidfSvdEncoder.load(folder) if name == "tfidf" else SentenceEncoder(name)


def _check_file(path: Path, record: FileRecord, verify: bool) -> None:
    try:
        num_bytes = path.stat().st_size
    except OSError as error:
        raise RetrievalError(f"{path}: is missing from the index; build it again") from error
    changed = num_bytes != record.num_bytes
    if not changed and (verify or num_bytes <= _ALWAYS_HASHED):
        changed = file_sha256(path) != record.sha256
    if changed:
        raise RetrievalError(
            f"{path}: is not the file the index was built with (another size or hash); index, passages and encoder "
            "belong together: bring the file back or build the index again"
        )
