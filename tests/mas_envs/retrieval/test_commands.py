"""`mas-envs index`: what it prints, what it makes, and its exit codes."""

import json
import subprocess
from pathlib import Path

import pytest

from mas_envs.retrieval import commands
from tests.mas_envs.retrieval.corpus import passages
from tests.mas_envs.test_cli import command, invoke


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commands.console, "width", 160)
    path = tmp_path / "corpus.jsonl"
    rows = [json.dumps({"id": p.id, "contents": p.contents}) for p in passages()]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_build_prints_the_size_first_and_info_shows_what_was_built(corpus: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "index")
    shown = invoke("index", "build", str(corpus), "--out", folder, "--factory", "HNSW16")
    assert "about 1,000 passages" in shown
    assert shown.index("A HNSW16 index takes about 1.7 MB on disk") < shown.index("mas-envs serve")
    shown = invoke("index", "info", folder, "--verify", "--query", passages()[3].title)
    assert "HNSW16" in shown
    assert "tfidf, 384 dimensions" in shown
    assert passages()[3].text[:40] in shown


def failed(*arguments: str) -> subprocess.CompletedProcess[str]:
    result = command(*arguments)
    assert "Traceback" not in result.stderr
    return result


def test_a_bad_row_ends_with_its_line_and_exit_code_one(corpus: Path, tmp_path: Path) -> None:
    with corpus.open("a", encoding="utf-8") as file:
        file.write('\n{"id": "new"}\n')
    result = failed("index", "build", str(corpus), "--out", str(tmp_path / "index"))
    assert result.returncode == 1
    assert "corpus.jsonl, line 1001, field 'contents': expected text, got None" in result.stderr


def test_a_folder_without_an_index_is_told_how_to_make_one(tmp_path: Path) -> None:
    for arguments in (["index", "info", str(tmp_path)], ["serve", str(tmp_path), "--port=0"]):
        result = failed(*arguments)
        assert result.returncode == 1
        assert "make one with `mas-envs index build CORPUS --out DIR`" in result.stderr


def test_an_unknown_kind_of_index_is_a_usage_error(corpus: Path, tmp_path: Path) -> None:
    result = failed("index", "build", str(corpus), "--out", str(tmp_path / "index"), "--factory", "Tree")
    assert result.returncode == 2
    assert "factory='Tree': faiss cannot make it" in result.stderr
