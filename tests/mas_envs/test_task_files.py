"""Task files: every form a row may take, and bad rows named by file, line and field."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_envs
from mas_envs import Task, load_tasks
from mas_envs.errors import MissingExtraError, TaskError
from mas_envs.task_files import read_tasks, task_from_row

GOOD = '{"question": "1+1", "answer": "2"}'


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "sums.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_rows_become_tasks(tmp_path: Path) -> None:
    rows = [
        {"question": "1+1", "answer": "2"},
        {"id": 7, "problem": "2+2", "solution": 4, "data_source": "mine", "metadata": {"level": 1}},
        {"id": "c", "prompt": "Größe?", "golden_answers": ["big", "large"], "source": "words", "unused": None},
    ]
    path = write(tmp_path, "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    assert list(load_tasks(str(path))) == [
        Task("sums-1", "1+1", "2", "sums"),
        Task("7", "2+2", "4", "mine", {"level": 1}),
        Task("c", "Größe?", ("big", "large"), "words"),
    ]
    assert load_tasks(path).name == "sums"
    assert load_tasks({"name": str(path), "source": "given"})[0].source == "given"


def test_byte_order_mark_and_windows_line_ends_are_harmless(tmp_path: Path) -> None:
    assert len(load_tasks(write(tmp_path, b"\xef\xbb\xbf" + f"{GOOD}\r\n{GOOD}\r\n".encode()))) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b'{"answer": "2"}', "line 2: field 'question' is missing; expected one of question, problem, prompt"),
        (b'{"question": "q"}', "line 2: field 'answer' is missing; expected one of answer, golden_answers, solution"),
        (b'{"problem": " ", "answer": "2"}', "line 2: field 'problem': expected text, got ' '"),
        (b'{"question": 3, "answer": "2"}', "line 2: field 'question': expected text, got 3"),
        (b'{"question": "q", "answer": null}', "line 2: field 'answer': expected text, a number or a list of texts"),
        (b'{"question": "q", "solution": ["a", 3]}', "line 2: field 'solution': expected text, a number or a list"),
        (b'{"question": "q", "answer": true}', "field 'answer': expected text, a number or a list of texts, got True"),
        (b'{"question": "q", "answer": NaN}', "field 'answer': expected text, a number or a list of texts, got nan"),
        (b'{"question": "q", "answer": "2", "id": [1]}', r"field 'id': expected text or an integer, got \[1\]"),
        (b'{"question": "q", "answer": "2", "id": true}', "field 'id': expected text or an integer, got True"),
        (b'{"question": "q", "answer": "2", "source": 3}', "field 'source': expected text, got 3"),
        (b'{"question": "q", "answer": "2", "metadata": []}', r"field 'metadata': expected an object, got \[\]"),
        (b'{"question": "q\\ud800", "answer": "2"}', "line 2: .*half a surrogate pair in its question"),
        (b'["q", "a"]', r"line 2: expected an object with 'question' and 'answer', got \['q', 'a'\]"),
        (b"question: q", r"line 2: not JSON \(.*, column 1\); expected one object per line"),
        (b'{"question": "\xff"}', r"line 2: not UTF-8 \(byte 14\); save the file as UTF-8"),
        (b"[" * 100_000, "line 2: JSON that cannot be read .*; shorten or flatten it"),
        (b'{"question": "q", "answer": ' + b"1" * 5000 + b"}", "line 2: JSON that cannot be read"),
        (
            b'{"question": "q", "answer": "2", "id": "sums-1"}',
            "line 2: field 'id': 'sums-1' was used in line 1; ids must",
        ),
    ],
    ids=lambda value: value[:40].decode("ascii", "replace") if isinstance(value, bytes) else "",
)
def test_bad_row_is_reported_with_file_line_and_field(row: bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.encode() + b"\n" + row + b"\n" + GOOD.encode())
    with pytest.raises(
        TaskError, match=rf"(?s)sums\.jsonl: 1 bad row\n  {message if message[0] == 'l' else '.*' + message}"
    ):
        load_tasks(path)


def test_several_bad_rows_are_reported_together(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join([GOOD, *['{"question": "q"}'] * 7]))
    with pytest.raises(TaskError) as caught:
        load_tasks(path)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("sums.jsonl: 7 bad rows")
    assert [line.split(":")[0].strip() for line in lines[1:6]] == [f"line {number}" for number in range(2, 7)]
    assert lines[6:] == ["  and 2 more"]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_file_without_rows_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"sums\.jsonl: holds no rows; expected one task a row"):
        load_tasks(write(tmp_path, content))


def test_folder_is_no_task_file(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(TaskError, match=r"folder\.jsonl: no such file; check the path"):
        load_tasks(tmp_path / "folder.jsonl")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that exists and fails to be read")
def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "locked.jsonl"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(TaskError, match=r"locked\.jsonl: (cannot be read|no such file)"):
        load_tasks(path)


def test_unknown_option_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"sums\.jsonl' does not take the option 'sourse'; did you mean 'source'\?"):
        load_tasks({"name": str(write(tmp_path, GOOD)), "sourse": "x"})


def test_parquet_file_is_read_like_jsonl(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="parquet needs pyarrow")
    path = tmp_path / "sums.parquet"
    rows = {"problem": ["1+1", "2+2"], "golden_answers": [["2", "two"], ["4"]], "metadata": [{"level": 1}, None]}
    parquet.write_table(arrow.table(rows), path)
    assert list(load_tasks(path)) == [
        Task("sums-1", "1+1", ("2", "two"), "sums", {"level": 1}),
        Task("sums-2", "2+2", ("4",), "sums"),
    ]


def test_broken_parquet_file_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    path = tmp_path / "sums.parquet"
    path.write_bytes(b"no parquet at all")
    with pytest.raises(TaskError, match=r"sums\.parquet: not a readable parquet file"):
        load_tasks(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"parquet files need pyarrow; pip install 'mas-envs\[data\]'"):
        load_tasks(tmp_path / "sums.parquet")


def test_environment_starts_from_a_file(tmp_path: Path) -> None:
    env = mas_envs.make("MathLoop-v0", tasks=str(write(tmp_path, GOOD)))
    env.reset(seed=0)
    assert env.infos["solver_0"]["task_id"] == "sums-1"
    assert "1+1" in env.observe("solver_0")["messages"][0]["content"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["question", "answer", "id", "source", "metadata", "problem"]), JSON))
def test_any_row_is_a_task_or_a_task_error(row: dict[str, Any]) -> None:
    message = ""
    try:
        task = task_from_row(row, default_id="d", default_source="s")
    except TaskError as error:
        message = str(error)
    assert "field" in message or (task.question.strip() and isinstance(task.source, str))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text("abc 12é", min_size=1))
def test_written_rows_are_read_back(question: str, answer: str) -> None:
    row = json.loads(json.dumps({"question": question, "answer": answer}))
    if question.strip() and answer.strip():
        assert task_from_row(row, default_id="d", default_source="s") == Task("d", question, answer, "s")


def test_file_type_is_checked_before_the_file(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"unknown file type '\.txt'"):
        read_tasks(tmp_path / "x.txt")
