"""A corpus as it comes: one JSON object a line with `id` and `contents` (the wiki-18 layout), plain or gzipped."""

import gzip
import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path

import numpy as np

from mas_envs.retrieval.passages import parse_row
from mas_envs.retrieval.protocol import Passage, RetrievalError

__all__ = ["CorpusEstimate", "estimate_corpus", "file_sha256", "read_corpus"]

_SAMPLED_LINES = 1000
_HASH_BLOCK = 1 << 20


@dataclass(frozen=True)
class CorpusEstimate:
    """What a look at the first lines says about a corpus."""

    num_passages: int
    """How many there are, about; exact when the file is short."""
    num_bytes: int
    """Size once unpacked, about."""


def estimate_corpus(path: Path) -> CorpusEstimate:
    """How large a corpus is, from the length of its first thousand lines; takes no time.

    Raises:
        RetrievalError: If the file cannot be read or is empty.
    """
    try:
        on_disk = path.stat().st_size
        with path.open("rb") as packed, _unpacked(packed, path) as file:
            lines = list(islice(file, _SAMPLED_LINES + 1))
            read_of_disk = packed.tell()
    except (OSError, EOFError) as error:
        raise RetrievalError(f"{path}: the corpus cannot be read ({error}); expected a .jsonl or .jsonl.gz") from error
    if not lines:
        raise RetrievalError(f"{path}: the corpus is empty; expected one object with 'id' and 'contents' a line")
    read = sum(map(len, lines))
    if len(lines) <= _SAMPLED_LINES:
        return CorpusEstimate(len(lines), read)
    unpacked = int(on_disk * max(1.0, read / read_of_disk)) if path.suffix == ".gz" else on_disk
    return CorpusEstimate(round(unpacked / (read / len(lines))), unpacked)


def read_corpus(path: Path, advance: Callable[[int], None] = lambda num: None) -> Iterator[Passage]:
    """The passages of a corpus, one at a time; empty lines are passed over.

    Args:
        path: The file.
        advance: Told the number of bytes of every line that was read.

    Raises:
        RetrievalError: If a line is no passage, or has the id of an earlier one; names file, line and field.
    """
    hashes, numbers = array("Q"), array("Q")
    try:
        with path.open("rb") as packed, _unpacked(packed, path) as file:
            for number, line in enumerate(file, start=1):
                advance(len(line))
                if not line.strip():
                    continue
                passage = parse_row(line, f"{path}, line {number}")
                digest = hashlib.blake2b(passage.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                hashes.append(int.from_bytes(digest, "little"))
                numbers.append(number)
                yield passage
    except (OSError, EOFError) as error:
        raise RetrievalError(f"{path}: the corpus cannot be read ({error})") from error
    _refuse_repeated(path, np.frombuffer(hashes, np.uint64), numbers)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _refuse_repeated(path: Path, hashes: np.ndarray, numbers: "array[int]") -> None:
    order = np.argsort(hashes, kind="stable")
    repeats = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if len(repeats):
        first, second = (numbers[int(order[at])] for at in (repeats[0], repeats[0] + 1))
        raise RetrievalError(
            f"{path}, line {second}, field 'id': the same as in line {first}; expected every id once "
            f"({len(repeats)} repeats in all); make the ids unique"
        )


def _unpacked(packed: BufferedReader, path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed
