"""Tasks, task sets and the names by which they are loaded."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mas_envs.tasks
from mas_envs import Task, TaskSet, load_tasks, register_tasks
from mas_envs.errors import TaskError
from mas_envs.tasks import task_names

TASKS = [Task("a", "1+1", "2"), Task("b", "2+2", ("4", "four"), "sums", {"level": 1})]


def one_task(*, answer: str = "2") -> TaskSet:
    return TaskSet([Task("one", "1+1", answer)], name="one")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_envs.tasks, "_loaders", dict(mas_envs.tasks._loaders))
    register_tasks("one_task", one_task)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": 3}, r"Task\.id=3: expected a str; convert it first"),
        ({"question": None}, r"Task\.question=None: expected a str"),
        ({"source": 1}, r"Task\.source=1: expected a str"),
        ({"question": " \n"}, "Task 'a' has a blank question; expected text"),
        ({"answer": 4}, "Task 'a' has the answer 4; expected a str or a tuple of str"),
        ({"answer": ()}, r"Task 'a' has the answer \(\); expected"),
        ({"answer": ["4"]}, r"Task 'a' has the answer \['4'\]; expected"),
        ({"question": "a\ud800"}, "Task 'a' has half a surrogate pair in its question"),
        ({"answer": ("1", "\udfff")}, "Task 'a' has half a surrogate pair in its answer"),
    ],
)
def test_unusable_task_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Task(**{"id": "a", "question": "q", "answer": "1", **fields})


def test_set_is_sized_indexable_and_iterable() -> None:
    tasks = TaskSet(TASKS, name="two")
    assert (len(tasks), tasks[1], tasks[-1], list(tasks)) == (2, TASKS[1], TASKS[1], TASKS)
    part = tasks[:1]
    assert (type(part), part.name, list(part)) == (TaskSet, "two", TASKS[:1])
    assert TASKS[0] in tasks
    assert repr(tasks) == "TaskSet('two', 2 tasks)"
    assert tasks.at(np.int64(1)) is TASKS[1]


def test_empty_set_is_refused() -> None:
    with pytest.raises(TaskError, match="the task set 'none' is empty; expected at least one task"):
        TaskSet([], name="none")


def test_copies_of_a_set_are_the_set() -> None:
    tasks = TaskSet(TASKS)
    assert copy.deepcopy({"tasks": tasks})["tasks"] is tasks


def test_lists_and_sets_of_tasks_are_taken_as_they_are() -> None:
    tasks, mine = TaskSet(TASKS), list(TASKS)
    assert load_tasks(tasks) is tasks
    loaded = load_tasks(mine)
    mine.clear()
    assert list(loaded) == TASKS


@pytest.mark.usefixtures("registered")
def test_registered_name_loads_with_options() -> None:
    assert "one_task" in task_names()
    assert load_tasks("one_task")[0].answer == "2"
    assert load_tasks({"name": "one_task", "answer": "two"})[0].answer == "two"


def test_arithmetic_loads_by_name() -> None:
    assert load_tasks("arithmetic").name == "arithmetic-2-train"
    assert load_tasks({"name": "arithmetic", "level": 4, "split": "test", "size": 5}).name == "arithmetic-4-test"


@pytest.mark.usefixtures("registered")
def test_name_taken_by_another_loader_is_refused() -> None:
    register_tasks("one_task", one_task)
    with pytest.raises(TaskError, match=r"task set 'one_task' is taken by .*; choose another name"):
        register_tasks("one_task", "other.module:load")


@pytest.mark.parametrize("name", ["Upper", "a.jsonl", "hf:x", "", "two words"])
def test_malformed_loader_name_is_refused(name: str) -> None:
    with pytest.raises(TaskError, match="expected lower-case letters, digits and underscores"):
        register_tasks(name, one_task)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "arithmetik",
            r"there is no task set 'arithmetik', and it is no \.jsonl or \.parquet file; did you mean arithmetic\?",
        ),
        ("zzz", "known sets are arithmetic"),
        ("a" * 5000, "there is no task set 'aaa"),
        ("nul\0", "there is no task set"),
        ("", "there is no task set ''"),
        (
            {"name": "arithmetic", "levle": 2},
            "task set 'arithmetic' does not take the option 'levle'; did you mean 'level'?",
        ),
        ({"name": "arithmetic", "split": "dev"}, "does not take split='dev'; expected one of 'train', 'test'"),
        ({"name": "arithmetic", "zzz": 2}, "does not take the option 'zzz'; it takes level, split"),
        ({"level": 2}, "the key 'name' is missing"),
        ({"name": 3}, "the key 'name' is missing"),
        (3, "tasks=3 of type int; expected a TaskSet, a list of Task, a name"),
        ([1, 2], r"tasks=\[1, 2\] of type list; expected"),
        (None, "tasks=None of type NoneType; expected"),
        ([], "is empty"),
        (Path("no_such.jsonl"), r"no_such\.jsonl: no such file; check the path"),
        ("no_such.parquet", r"no_such\.parquet: no such file"),
        (Path("tasks.csv"), r"tasks\.csv: unknown file type '\.csv'; expected \.jsonl or \.parquet"),
    ],
)
def test_unusable_source_is_refused(source: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_tasks(source)
