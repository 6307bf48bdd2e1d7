"""Index folders: a build that was killed ends the same, and files that do not belong together are refused."""

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval import RetrievalError
from mas_envs.retrieval.index_builder import IndexBuilder
from mas_envs.retrieval.index_folder import open_index, read_manifest
from mas_envs.retrieval.protocol import Passage
from tests.mas_envs.retrieval.corpus import passages, recall


def write_corpus(path: Path, rows: tuple[Passage, ...] | None = None) -> Path:
    lines = [json.dumps({"id": row.id, "contents": row.contents}) for row in rows or passages()]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl")


@pytest.fixture(scope="module")
def index(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    IndexBuilder(corpus, folder, part_size=300).build()
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_an_index_finds_what_the_corpus_holds(index: Path) -> None:
    retriever = open_index(index, verify=True)
    assert recall(retriever.search, 3) > 0.9
    assert {path.name for path in index.iterdir()} == {
        "manifest.json",
        "passages.jsonl",
        "offsets.npy",
        "index.faiss",
        "tfidf.json",
        "tfidf_axes.npy",
    }


def test_memory_mapped_and_loaded_find_the_same(index: Path) -> None:
    queries = ["the river at a city", passages()[5].title]
    mapped, loaded = open_index(index), open_index(index, memory_map=False)
    assert mapped.search(queries, 5) == loaded.search(queries, 5)


@pytest.mark.parametrize(("factory", "probes"), [("HNSW16", None), ("IVF16,PQ24np", 16)])
def test_every_kind_of_faiss_index_can_be_built(corpus: Path, tmp_path: Path, factory: str, probes: int | None) -> None:
    manifest = IndexBuilder(corpus, tmp_path / "index", factory=factory, num_probes=probes).build()
    assert (manifest.factory, manifest.num_probes) == (factory, probes)
    assert recall(open_index(tmp_path / "index").search, 10) > 0.6


def test_a_gzipped_corpus_gives_the_same_index(index: Path, tmp_path: Path) -> None:
    packed = write_corpus(tmp_path / "corpus.jsonl.gz")
    IndexBuilder(packed, tmp_path / "index", part_size=300).build()
    ours, theirs = files_of(tmp_path / "index"), files_of(index)
    del ours["manifest.json"], theirs["manifest.json"]
    assert ours == theirs


def test_the_plan_tells_sizes_before_anything_is_built(corpus: Path, index: Path, tmp_path: Path) -> None:
    plan = IndexBuilder(corpus, tmp_path / "index").plan()
    assert not (tmp_path / "index" / "passages.jsonl").exists()
    assert plan.num_passages == 1000
    built = (index / "index.faiss").stat().st_size
    assert plan.index_bytes == pytest.approx(built, rel=0.02)


@pytest.mark.parametrize("stage", ["passages", "encoder", "vectors", "index", "checksums"])
def test_a_build_killed_in_any_stage_goes_on_to_the_same_index(
    corpus: Path, index: Path, tmp_path: Path, stage: str
) -> None:
    folder = tmp_path / "index"
    at = 600 if stage in ("vectors", "index") else 0
    code = (
        "import os, signal, sys\n"
        "from mas_envs.retrieval.index_builder import IndexBuilder\n"
        "def report(name, done, total):\n"
        f"    if name == {stage!r} and done >= {at}: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"IndexBuilder({str(corpus)!r}, {str(folder)!r}, part_size=300).build(report)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(RetrievalError, match="run the same `mas-envs index build` again"):
        open_index(folder)
    done_again: list[tuple[str, int]] = []
    IndexBuilder(corpus, folder, part_size=300).build(lambda name, done, total: done_again.append((name, done)))
    assert files_of(folder) == files_of(index)
    if stage == "index":
        assert ("vectors", 1000) in done_again
        assert ("vectors", 150) not in done_again


def test_parts_encoded_before_a_kill_are_not_encoded_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StopError(Exception):
        pass

    def stop(name: str, done: int, total: int) -> None:
        if name == "vectors" and done == 600:
            raise StopError

    with pytest.raises(StopError):
        IndexBuilder(corpus, tmp_path / "index", part_size=300).build(stop)
    first = tmp_path / "index" / "vectors" / "000000.npy"
    written = first.stat().st_mtime_ns
    seen: list[int] = []
    IndexBuilder(corpus, tmp_path / "index", part_size=300).build(
        lambda name, done, total: seen.append(first.stat().st_mtime_ns) if name == "vectors" else None
    )
    assert set(seen) == {written}


def test_a_full_disk_stops_the_build_and_loses_nothing(
    corpus: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if str(target).endswith("000001.npy"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(RetrievalError, match=r"the build stopped .*No space left.*goes on where it was"):
            IndexBuilder(corpus, tmp_path / "index", part_size=300).build()
    IndexBuilder(corpus, tmp_path / "index", part_size=300).build()
    assert files_of(tmp_path / "index") == files_of(index)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x"}', r"line 3, field 'contents': expected text"),
        ('{"contents": "a\\nb"}', r"line 3, field 'id': expected text or an integer"),
        ("{", r"line 3: not JSON"),
        ('{"id": "0", "contents": "a\\nb"}', r"line 3, field 'id': the same as in line 1"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "0", "contents": "a\\nb"}\n\n' + line + "\n", encoding="utf-8")
    with pytest.raises(RetrievalError, match=message):
        IndexBuilder(path, tmp_path / "index").build()
    write_corpus(path, passages()[:10])  # the corpus is mended: the same command works
    assert IndexBuilder(path, tmp_path / "index").build().num_passages == 10


def test_a_corpus_that_cannot_be_read_is_an_error_before_the_build(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match="cannot be read"):
        IndexBuilder(tmp_path / "none.jsonl", tmp_path / "index")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(RetrievalError, match="the corpus is empty"):
        IndexBuilder(tmp_path / "empty.jsonl", tmp_path / "index")
    (tmp_path / "no.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(RetrievalError, match="cannot be read"):
        IndexBuilder(tmp_path / "no.jsonl.gz", tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_folder_with_something_else_in_it_is_left_alone(corpus: Path, index: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RetrievalError, match="exists and is not empty"):
        IndexBuilder(corpus, tmp_path)
    with pytest.raises(RetrievalError, match="exists and is not empty"):
        IndexBuilder(corpus, index)
    with pytest.raises(RetrievalError, match="holds no finished index; make one"):
        open_index(tmp_path)


def test_an_unfinished_build_with_other_settings_is_refused(corpus: Path, tmp_path: Path) -> None:
    def stop(name: str, done: int, total: int) -> None:
        if name == "vectors":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        IndexBuilder(corpus, tmp_path / "index").build(stop)
    with pytest.raises(RetrievalError, match="unfinished build of another corpus or with other settings"):
        IndexBuilder(corpus, tmp_path / "index", factory="HNSW16")


@pytest.mark.parametrize(
    ("argument", "message"),
    [({"part_size": 0}, "part_size=0"), ({"num_probes": 0}, "num_probes=0"), ({"num_probes": True}, "num_probes=True")],
)
def test_arguments_out_of_range_are_refused(
    corpus: Path, tmp_path: Path, argument: dict[str, int], message: str
) -> None:
    with pytest.raises(BadArgumentError, match=message):
        IndexBuilder(corpus, tmp_path / "index", **argument)  # type: ignore[arg-type]


def test_probes_of_an_index_without_lists_are_refused(corpus: Path, index: Path, tmp_path: Path) -> None:
    with pytest.raises(BadArgumentError, match="num_probes=8: a HNSW16 index has no lists"):
        IndexBuilder(corpus, tmp_path / "index", factory="HNSW16", num_probes=8)
    with pytest.raises(BadArgumentError, match="num_probes=8: only an index with lists"):
        open_index(index, num_probes=8)


def test_an_unknown_factory_string_is_named(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BadArgumentError, match="factory='Nonsense': faiss cannot make it in 384 dimensions"):
        IndexBuilder(corpus, tmp_path / "index", factory="Nonsense").plan()
    with pytest.raises(BadArgumentError, match="factory='Nonsense'"):
        IndexBuilder(corpus, tmp_path / "index", factory="Nonsense").build()


@pytest.mark.parametrize("name", ["passages.jsonl", "index.faiss", "tfidf_axes.npy"])
def test_a_file_of_another_index_is_refused(index: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    IndexBuilder(write_corpus(tmp_path / "corpus.jsonl", passages()[:500]), other).build()
    (other / name).write_bytes((index / name).read_bytes())
    with pytest.raises(RetrievalError, match=rf"{name}: is not the file the index was built with"):
        open_index(other)
    (other / name).unlink()
    with pytest.raises(RetrievalError, match=rf"{name}: is missing from the index"):
        open_index(other)


def test_one_changed_byte_is_found(index: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, data in files_of(index).items():
        (copy / name).write_bytes(data)
    open_index(copy)
    changed = bytearray((copy / "index.faiss").read_bytes())
    changed[-1] ^= 1
    (copy / "index.faiss").write_bytes(changed)
    with pytest.raises(RetrievalError, match=r"index\.faiss: is not the file"):
        open_index(copy, verify=True)


def test_a_broken_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(RetrievalError, match=r"manifest\.json: cannot be used \(another format than 1\)"):
        read_manifest(tmp_path)
