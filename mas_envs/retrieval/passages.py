"""`PassageStore`: passages on disk, one JSON object a line, read one at a time through a memory map."""

import json
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.retrieval.protocol import Passage, RetrievalError

__all__ = ["PassageStore", "parse_row"]

_DATA, _OFFSETS = "passages.jsonl", "offsets.npy"


class PassageStore:
    r"""Passages in a folder: `passages.jsonl` in the wiki-18 layout, and `offsets.npy`, where each line starts.

    Only what is read comes into memory, and the operating system may take it back. Copies and pickles open the same
    files again.

    Args:
        folder: What `write` made.

    Raises:
        RetrievalError: If the files are missing or do not belong together.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        try:
            self._offsets: NDArray[np.uint64] = np.load(self.folder / _OFFSETS, mmap_mode="r", allow_pickle=False)
            with (self.folder / _DATA).open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise RetrievalError(f"{self.folder}: holds no passages ({error}); write them again") from error
        if not len(self._offsets) or int(self._offsets[-1]) != len(self._data):
            raise RetrievalError(
                f"{self.folder}: {_OFFSETS} and {_DATA} do not belong together (one was changed); write them again"
            )

    @classmethod
    def write(cls, passages: Iterable[Passage], folder: Path | str) -> "PassageStore":
        """Write a stream of passages into `folder`, which is made if need be; memory does not grow with their number.

        Raises:
            RetrievalError: If there are none.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        offsets = [0]
        with (folder / _DATA).open("wb") as file:
            for passage in passages:
                row = {"id": passage.id, "contents": passage.contents}
                offsets.append(offsets[-1] + file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n"))
        if len(offsets) == 1:
            raise RetrievalError(f"{folder}: the corpus is empty; expected at least one passage")
        np.save(folder / _OFFSETS, np.array(offsets, np.uint64))
        return cls(folder)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> Passage:
        """The passage at a position.

        Raises:
            IndexError: If there is none.
            RetrievalError: If its line cannot be read.
        """
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"passage {index} of {len(self)}")
        start, end = int(self._offsets[position]), int(self._offsets[position + 1])
        return parse_row(self._data[start:end], f"{self.folder / _DATA}, line {position + 1}")

    def __iter__(self) -> Iterator[Passage]:
        return (self[index] for index in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "PassageStore":
        return self

    def __reduce__(self) -> tuple[type["PassageStore"], tuple[Path]]:
        return (PassageStore, (self.folder,))

    def __repr__(self) -> str:
        return f"PassageStore({str(self.folder)!r}, {len(self)} passages)"


def parse_row(line: bytes, where: str) -> Passage:
    r"""The passage in one line of a corpus.

    >>> parse_row(b'{"id": 7, "contents": "\\"Paris\\"\\nA city."}', "corpus.jsonl, line 1")
    Passage(id='7', title='Paris', text='A city.', score=0.0)

    Args:
        line: One JSON object with `id` and `contents`.
        where: File and line, for the error.

    Raises:
        RetrievalError: If the line is no such object; names the field.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RetrievalError(f"{where}: not JSON ({error}); expected one object per line") from error
    if not isinstance(row, dict):
        raise RetrievalError(f"{where}: expected an object with 'id' and 'contents', got {row!r:.60}")
    contents, id = row.get("contents"), row.get("id")
    if not isinstance(contents, str) or not contents.strip():
        raise RetrievalError(f"{where}, field 'contents': expected text, got {contents!r:.60}")
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise RetrievalError(f"{where}, field 'id': expected text or an integer, got {id!r:.60}")
    return Passage.from_contents(str(id), contents)
