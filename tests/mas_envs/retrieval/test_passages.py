"""Passages on disk: what was written comes back, one at a time, and broken files are named."""

import copy
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.retrieval import RetrievalError
from mas_envs.retrieval.encoders import TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.passages import PassageStore, parse_row
from mas_envs.retrieval.protocol import Passage
from mas_envs.search.world import World
from tests.mas_envs.retrieval.corpus import passages

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_store_gives_every_passage_back(tmp_path: Path) -> None:
    store = PassageStore.write(World(1000).passages(), tmp_path / "corpus")
    assert len(store) == 1000
    assert list(store) == list(passages())
    assert store[-1] == passages()[-1]
    assert "1000 passages" in repr(store)


@given(st.lists(st.tuples(TEXT.filter(lambda title: "\n" not in title), TEXT), min_size=1, max_size=5))
def test_any_text_survives(texts: list[tuple[str, str]]) -> None:
    written = [Passage(str(at), title, text) for at, (title, text) in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        assert list(PassageStore.write(written, Path(folder))) == written


def test_copies_and_pickles_read_the_same_files(tmp_path: Path) -> None:
    store = PassageStore.write(passages(), tmp_path)
    assert copy.deepcopy(store) is store
    assert pickle.loads(pickle.dumps(store))[7] == store[7]


def test_index_over_passages_on_disk_finds_the_same(tmp_path: Path) -> None:
    store = PassageStore.write(passages(), tmp_path)
    encoder = TfidfSvdEncoder().fit(store)
    on_disk, in_memory = (FaissRetriever.build(each, encoder) for each in (store, passages()))
    queries = [passages()[at].title for at in (5, 50, 500)]
    assert on_disk.search(queries, 3) == in_memory.search(queries, 3)


def test_position_outside_is_an_index_error(tmp_path: Path) -> None:
    store = PassageStore.write(passages()[:3], tmp_path)
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"passage {index} of 3"):
            store[index]


def test_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match="the corpus is empty; expected at least one passage"):
        PassageStore.write([], tmp_path)


def test_folder_without_passages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match=r"holds no passages .*; write them again"):
        PassageStore(tmp_path)


def test_changed_data_file_is_noticed(tmp_path: Path) -> None:
    PassageStore.write(passages()[:3], tmp_path)
    with (tmp_path / "passages.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(RetrievalError, match=r"offsets.npy and passages.jsonl do not belong together"):
        PassageStore(tmp_path)


def test_damaged_line_is_named(tmp_path: Path) -> None:
    PassageStore.write(passages()[:3], tmp_path)
    data = tmp_path / "passages.jsonl"
    lines = data.read_bytes().splitlines(keepends=True)
    data.write_bytes(lines[0] + b"x" * (len(lines[1]) - 1) + b"\n" + lines[2])
    with pytest.raises(RetrievalError, match="line 2: not JSON"):
        PassageStore(tmp_path)[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[1]", r"f, line 3: expected an object with 'id' and 'contents', got \[1\]"),
        (b'{"id": 1}', "f, line 3, field 'contents': expected text, got None"),
        (b'{"id": 1, "contents": " "}', "field 'contents': expected text, got ' '"),
        (b'{"contents": "x"}', "field 'id': expected text or an integer, got None"),
        (b'{"id": true, "contents": "x"}', "field 'id': expected text or an integer, got True"),
        (b"\xff", "f, line 3: not JSON"),
    ],
)
def test_bad_row_is_named_with_its_field(line: bytes, message: str) -> None:
    with pytest.raises(RetrievalError, match=message):
        parse_row(line, "f, line 3")
