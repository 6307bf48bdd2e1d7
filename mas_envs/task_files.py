"""Task sets read from `.jsonl` and `.parquet` files; bad rows are reported with file, line and field."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from mas_envs.errors import MissingExtraError, TaskError
from mas_envs.tasks import Task, TaskSet

__all__ = ["read_rows", "read_tasks", "task_from_row", "tasks_of_rows"]

_QUESTION_FIELDS = ("question", "problem", "prompt")
_ANSWER_FIELDS = ("answer", "golden_answers", "solution")
_SOURCE_FIELDS = ("source", "data_source")
_REPORTED_ROWS = 5


def read_tasks(path: Path | str, *, source: str | None = None) -> TaskSet:
    """The tasks of a `.jsonl` or `.parquet` file, one row each.

    A row has `question` (or `problem`, `prompt`), `answer` (or `golden_answers`, `solution`; text, a number, or a list
    of texts of which any is right), and may have `id`, `source` (or `data_source`) and `metadata`.

    Args:
        path: The file.
        source: Source of rows that name none; None takes the file's name without its ending.

    Raises:
        TaskError: If the file cannot be read, or rows are bad: each is named with its line and field.
        MissingExtraError: For a parquet file without pyarrow.
    """
    path = Path(path)
    tasks = tasks_of_rows(str(path), path.stem, read_rows(path), source=source or path.stem)
    if not tasks:
        raise TaskError(f"{path}: holds no rows; expected one task a row")
    return TaskSet(tasks, name=path.stem)


def read_rows(path: Path) -> Iterator[tuple[int, object]]:
    """Line and content of each row of a `.jsonl` or `.parquet` file; a line that cannot be read is a `TaskError`.

    Raises:
        TaskError: If the file is missing, cannot be read or is of another type.
        MissingExtraError: For a parquet file without pyarrow.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise TaskError(f"{path}: unknown file type {path.suffix!r}; expected .jsonl or .parquet")
    if not path.is_file():
        raise TaskError(f"{path}: no such file; check the path")
    try:
        yield from _jsonl_rows(path) if path.suffix == ".jsonl" else _parquet_rows(path)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror or error}); check its permissions") from error


def tasks_of_rows(
    where: str,
    name: str,
    rows: Iterable[tuple[int, object]],
    *,
    source: str,
    read_row: Callable[..., Task] | None = None,
) -> list[Task]:
    """The tasks of all rows, or one error about the bad ones.

    Args:
        where: File or data set, for the error.
        name: What ids of rows without one start with.
        rows: Line and content; a content that is a `TaskError` is a bad row.
        source: Source of rows that name none.
        read_row: From a row, with `default_id` and `default_source`, to a task; None is `task_from_row`.

    Raises:
        TaskError: Names the first bad rows with line and field.
    """
    read_row = read_row or task_from_row
    tasks: list[Task] = []
    faults: list[str] = []
    seen: dict[str, int] = {}
    for line, row in rows:
        try:
            if isinstance(row, TaskError):
                raise row
            task = read_row(row, default_id=f"{name}-{line}", default_source=source)
            if task.id in seen:
                raise TaskError(f"field 'id': {task.id!r} was used in line {seen[task.id]}; ids must differ")
        except TaskError as error:
            faults.append(f"  line {line}: {error}")
            continue
        seen[task.id] = line
        tasks.append(task)
    if faults:
        more = f"\n  and {len(faults) - _REPORTED_ROWS} more" if len(faults) > _REPORTED_ROWS else ""
        count = "1 bad row" if len(faults) == 1 else f"{len(faults)} bad rows"
        raise TaskError(f"{where}: {count}\n" + "\n".join(faults[:_REPORTED_ROWS]) + more)
    return tasks


def task_from_row(row: object, *, default_id: str, default_source: str) -> Task:
    """The task that one row of a file holds.

    Raises:
        TaskError: If a field is missing or of the wrong type; names the field.
    """
    if not isinstance(row, Mapping):
        raise TaskError(f"expected an object with 'question' and 'answer', got {row!r:.60}")
    question_field, question = _first(row, _QUESTION_FIELDS)
    if not isinstance(question, str) or not question.strip():
        raise TaskError(f"field {question_field!r}: expected text, got {question!r:.60}")
    answer_field, answer = _first(row, _ANSWER_FIELDS)
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TaskError(f"field 'metadata': expected an object, got {metadata!r:.60}")
    task_id = row.get("id")
    if isinstance(task_id, bool) or not isinstance(task_id, (str, int, NoneType)):
        raise TaskError(f"field 'id': expected text or an integer, got {task_id!r:.60}")
    source = next((row[name] for name in _SOURCE_FIELDS if row.get(name) is not None), default_source)
    if not isinstance(source, str):
        raise TaskError(f"field 'source': expected text, got {source!r:.60}")
    return Task(
        id=default_id if task_id is None else str(task_id),
        question=question,
        answer=_answer(answer, answer_field),
        source=source,
        metadata=dict(metadata or {}),
    )


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    for name in names:
        if name in row:
            return name, row[name]
    raise TaskError(f"field {names[0]!r} is missing; expected one of {', '.join(names)}")


def _answer(value: object, name: str) -> str | tuple[str, ...]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, str) and part.strip() for part in value):
        return tuple(value)
    raise TaskError(f"field {name!r}: expected text, a number or a list of texts, got {value!r:.60}")


def _jsonl_rows(path: Path) -> Iterator[tuple[int, object]]:
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                yield line, json.loads(raw.decode("utf-8-sig" if line == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                yield line, TaskError(f"not UTF-8 (byte {error.start}); save the file as UTF-8")
            except json.JSONDecodeError as error:
                yield line, TaskError(f"not JSON ({error.msg}, column {error.colno}); expected one object per line")
            except (ValueError, RecursionError) as error:
                yield line, TaskError(f"JSON that cannot be read ({error}); shorten or flatten it")


def _parquet_rows(path: Path) -> Iterator[tuple[int, object]]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError(f"{path}: parquet files need pyarrow; pip install 'mas-envs[data]'") from error
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise TaskError(f"{path}: not a readable parquet file ({error}); write it again") from error
    yield from enumerate(table.to_pylist(), start=1)
