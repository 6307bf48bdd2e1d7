"""Building an index folder from a corpus, stage by stage; a build that was killed goes on where it was."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.corpus_file import CorpusEstimate, estimate_corpus, file_sha256, read_corpus
from mas_envs.retrieval.encoders import Encoder, TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import new_index
from mas_envs.retrieval.index_folder import INDEX_FILE, FileRecord, Manifest, load_encoder, write_manifest
from mas_envs.retrieval.index_size import bytes_per_passage, default_factory, default_probes
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.passages import PassageStore
from mas_envs.retrieval.protocol import Passage, RetrievalError

__all__ = ["BuildPlan", "IndexBuilder", "Stage"]

Stage = Callable[[str, int, int], None]
"""Told the name of the stage, how much of it is done, and the whole of it."""

_STATE, _PARTS = "building.json", "vectors"
_FITTED_ON = 20_000
_TRAINED_ON = 100_000
_MOST_TFIDF_DIM = 384


@dataclass(frozen=True)
class BuildPlan:
    """What a build will take, as far as the first lines of the corpus tell."""

    num_passages: int
    """Passages, about."""
    factory: str
    """Kind of index."""
    passages_bytes: int
    """Disk the passages take."""
    index_bytes: int
    """Disk the index takes, and memory when it is not memory-mapped."""
    scratch_bytes: int
    """Disk the vectors take while the index is built."""


class IndexBuilder:
    """Builds one index folder.

    Args:
        corpus: `.jsonl` or `.jsonl.gz` in the wiki-18 layout.
        folder: Where the index goes; made if need be. Holds an unfinished build of the same settings, or no index.
        encoder: `tfidf`, fitted on the corpus, or a sentence encoder by folder or hub name.
        factory: What faiss calls the kind of index; None is exact up to 100,000 passages and compressed lists beyond.
        num_probes: Lists that a search looks through; None is 64 where there are lists.
        part_size: Passages encoded between two points at which a killed build can go on; >= 1.

    Raises:
        RetrievalError: If the corpus cannot be read, or `folder` holds something else.
        BadArgumentError: If an argument is out of range or faiss does not know the factory string.
        MissingExtraError: Without faiss.
    """

    def __init__(
        self,
        corpus: Path | str,
        folder: Path | str,
        *,
        encoder: str = "tfidf",
        factory: str | None = None,
        num_probes: int | None = None,
        part_size: int = 50_000,
    ) -> None:
        for name, value in (("part_size", part_size), ("num_probes", 1 if num_probes is None else num_probes)):
            if not is_whole(value) or value < 1:
                raise BadArgumentError(f"{name}={value!r}: expected a whole number >= 1")
        if num_probes is not None and factory is not None and default_probes(factory) is None:
            raise BadArgumentError(
                f"num_probes={num_probes!r}: a {factory} index has no lists to look through; leave it out"
            )
        self.corpus, self.folder = Path(corpus), Path(folder)
        self._estimate: CorpusEstimate = estimate_corpus(self.corpus)
        self._encoder_name, self._part_size = encoder, part_size
        self._factory, self._num_probes = factory, num_probes
        self._encoder: Encoder | None = None if encoder == "tfidf" else load_encoder(self.folder, encoder)
        if factory is not None and self._encoder is not None:
            bytes_per_passage(factory, self._encoder.dim)
        self._claim_folder()

    def plan(self) -> BuildPlan:
        """What the build will take; nothing is built yet."""
        num = self._estimate.num_passages
        dim = _MOST_TFIDF_DIM if self._encoder is None else self._encoder.dim
        factory = self._factory or default_factory(num, dim)
        index_bytes = num * bytes_per_passage(factory, dim)
        return BuildPlan(num, factory, self._estimate.num_bytes + 8 * num, index_bytes, 4 * dim * num)

    def build(self, report: Stage = lambda name, done, total: None) -> Manifest:
        """Do what is left to do.

        Raises:
            RetrievalError: If a row of the corpus cannot be used (names its line), or the disk is full.
        """
        try:
            passages = self._write_passages(report)
            encoder = self._fit_encoder(passages, report)
            factory = self._factory or default_factory(len(passages), encoder.dim)
            self._encode(passages, encoder, report)
            self._assemble(passages, factory, encoder, report)
            return self._finish(passages, factory, encoder, report)
        except OSError as error:
            raise RetrievalError(
                f"{self.folder}: the build stopped ({error}); free the disk and run it again, it goes on where it was"
            ) from error

    def _claim_folder(self) -> None:
        """Refuse a folder with something else in it; remember what is being built there."""
        stat = self.corpus.stat()
        settings = {
            "corpus": str(self.corpus.resolve()),
            "corpus_bytes": stat.st_size,
            "corpus_modified_ns": stat.st_mtime_ns,
            "encoder": self._encoder_name,
            "factory": self._factory,
            "part_size": self._part_size,
        }
        state = self.folder / _STATE
        if state.is_file() and (self.folder / "offsets.npy").is_file():
            if json.loads(state.read_text(encoding="utf-8")) != settings:
                raise RetrievalError(
                    f"{self.folder}: holds an unfinished build of another corpus or with other settings; go on with "
                    "those, or remove the folder"
                )
        elif not state.is_file() and self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise RetrievalError(f"{self.folder}: exists and is not empty; expected a new folder, or remove this one")
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_atomically(state, json.dumps(settings).encode())

    def _write_passages(self, report: Stage) -> PassageStore:
        total, done = self._estimate.num_bytes, 0
        if not (self.folder / "offsets.npy").is_file():

            def advance(num_bytes: int) -> None:
                nonlocal done
                done += num_bytes
                report("passages", done, max(total, done))

            scratch = self.folder / "passages.tmp"
            shutil.rmtree(scratch, ignore_errors=True)
            PassageStore.write(read_corpus(self.corpus, advance), scratch)
            for name in ("passages.jsonl", "offsets.npy"):
                os.replace(scratch / name, self.folder / name)
            scratch.rmdir()
        report("passages", 1, 1)
        return PassageStore(self.folder)

    def _fit_encoder(self, passages: PassageStore, report: Stage) -> Encoder:
        if self._encoder is None:
            if not (self.folder / "tfidf.json").is_file():
                report("encoder", 0, 1)
                scratch = self.folder / "encoder.tmp"
                scratch.mkdir(exist_ok=True)
                TfidfSvdEncoder().fit(_spread(passages, _FITTED_ON)).save(scratch)
                for name in ("tfidf_axes.npy", "tfidf.json"):
                    os.replace(scratch / name, self.folder / name)
                scratch.rmdir()
            self._encoder = TfidfSvdEncoder.load(self.folder)
        report("encoder", 1, 1)
        return self._encoder

    def _encode(self, passages: PassageStore, encoder: Encoder, report: Stage) -> None:
        if (self.folder / INDEX_FILE).is_file():
            return
        (self.folder / _PARTS).mkdir(exist_ok=True)
        for start in range(0, len(passages), self._part_size):
            stop = min(start + self._part_size, len(passages))
            report("vectors", start, len(passages))
            path = self._part(start)
            if not path.is_file():
                vectors = np.empty((stop - start, encoder.dim), np.float32)
                for at in range(start, stop, 1024):
                    until = min(at + 1024, stop)
                    vectors[at - start : until - start] = encoder.encode_passages(
                        [passages[i] for i in range(at, until)]
                    )
                    report("vectors", until, len(passages))
                scratch = path.with_suffix(".tmp")
                with scratch.open("wb") as file:
                    np.save(file, vectors)
                os.replace(scratch, path)
        report("vectors", len(passages), len(passages))

    def _assemble(self, passages: PassageStore, factory: str, encoder: Encoder, report: Stage) -> None:
        """Train the index and add every part; quick beside the encoding, so that it starts anew after a kill."""
        if (self.folder / INDEX_FILE).is_file():
            return
        report("index", 0, len(passages))
        starts = range(0, len(passages), self._part_size)
        stride = max(1, len(passages) // _TRAINED_ON)
        index = new_index(
            encoder.dim,
            factory,
            len(passages),
            lambda: np.concatenate([np.load(self._part(start), mmap_mode="r")[::stride] for start in starts]),
        )
        for start in starts:
            index.add(np.load(self._part(start)))
            report("index", min(start + self._part_size, len(passages)), len(passages))
        faiss: Any = need("faiss", "an index")
        faiss.write_index(index, str(self.folder / f"{INDEX_FILE}.tmp"))
        os.replace(self.folder / f"{INDEX_FILE}.tmp", self.folder / INDEX_FILE)

    def _finish(self, passages: PassageStore, factory: str, encoder: Encoder, report: Stage) -> Manifest:
        names = ["passages.jsonl", "offsets.npy", INDEX_FILE]
        names += ["tfidf.json", "tfidf_axes.npy"] if self._encoder_name == "tfidf" else []
        records = {}
        for done, name in enumerate(names):
            report("checksums", done, len(names))
            path = self.folder / name
            records[name] = FileRecord(path.stat().st_size, file_sha256(path))
        report("checksums", len(names), len(names))
        probes = default_probes(factory)
        if probes is not None and self._num_probes is not None:
            probes = self._num_probes
        corpus = str(self.corpus.resolve())
        manifest = Manifest(corpus, len(passages), self._encoder_name, encoder.dim, factory, probes, records)
        write_manifest(self.folder, manifest)
        shutil.rmtree(self.folder / _PARTS, ignore_errors=True)
        (self.folder / _STATE).unlink()
        return manifest

    def _part(self, start: int) -> Path:
        return self.folder / _PARTS / f"{start // self._part_size:06d}.npy"


def _spread(passages: PassageStore, most: int) -> Iterator[Passage]:
    """At most `most` passages, evenly from the whole corpus."""
    return (passages[at] for at in range(0, len(passages), -(-len(passages) // most)))


def _write_atomically(path: Path, data: bytes) -> None:
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.write_bytes(data)
    os.replace(scratch, path)
