"""The task set `world`: chains of facts, supporting passages, splits without overlap."""

from typing import Any

import pytest

from mas_envs import Task
from mas_envs.errors import TaskError
from mas_envs.retrieval.protocol import Passage
from mas_envs.search.questions import WorldTasks, world_tasks
from mas_envs.tasks import load_tasks


def load(**options: Any) -> WorldTasks:
    tasks = load_tasks({"name": "world", **options})
    assert isinstance(tasks, WorldTasks)
    return tasks


def passages_of(tasks: WorldTasks) -> dict[str, Passage]:
    return {passage.id: passage for passage in tasks.corpus.passages()}


def names_in(task: Task) -> set[str]:
    return {*task.metadata["supporting_titles"], *task.metadata["values"]}


@pytest.mark.parametrize("size", [1000, "small"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_supporting_passages_lead_from_the_question_to_the_answer(size: Any, hops: int) -> None:
    tasks = load(size=size, hops=hops, num_tasks=200)
    passages = passages_of(tasks)
    for task in tasks:
        data = task.metadata
        assert data["hops"] == len(data["supporting_ids"]) == len(data["queries"]) == hops
        assert task.source == f"world-{hops}hop"
        assert data["values"][-1] == task.answer
        for id, title, value in zip(data["supporting_ids"], data["supporting_titles"], data["values"], strict=True):
            assert passages[id].title == title
            assert value in passages[id].text
        assert data["supporting_titles"][1:] == data["values"][:-1]
        assert len(set(names_in(task))) >= hops + 1
        assert all(title in query for title, query in zip(data["supporting_titles"], data["queries"], strict=True))


@pytest.mark.parametrize("size", [250, 1000, "small"])
def test_no_entity_of_the_test_split_occurs_in_training(size: Any) -> None:
    train, test = load(size=size, hops=[1, 2, 3]), load(size=size, hops=[1, 2, 3], split="test")
    titles = {passage.title for passage in train.corpus.passages()}
    seen = set().union(*map(names_in, train)) & titles
    held_out = set().union(*map(names_in, test)) & titles
    assert len(held_out) >= 20
    assert seen.isdisjoint(held_out)


def test_questions_differ_and_come_in_several_phrasings() -> None:
    tasks = load(hops=1)
    assert len({task.id for task in tasks}) == len(tasks)
    by_relation: dict[str, set[str]] = {}
    for task in tasks:
        title = task.metadata["supporting_titles"][0]
        by_relation.setdefault(task.id.split("/")[-1], set()).add(task.question.replace(title, "X"))
    assert len(by_relation) == 27
    assert all(len({text for text in texts if "X" in text}) >= 2 for texts in by_relation.values())


def test_some_questions_use_an_alias_that_the_passage_explains() -> None:
    tasks = load(hops=1)
    passages = passages_of(tasks)
    by_alias = [task for task in tasks if task.metadata["supporting_titles"][0] not in task.question]
    assert 0.01 < len(by_alias) / len(tasks) < 0.2
    for task in by_alias:
        text = passages[task.metadata["supporting_ids"][0]].text
        alias = text.split(" is also known as ")[1].split(".")[0]
        assert alias in task.question


def test_answers_name_their_aliases() -> None:
    tasks = load(hops=2)
    named = [task for task in tasks if task.metadata["answer_aliases"]]
    assert 0.05 < len(named) / len(tasks) < 0.5


def test_depths_are_mixed_as_asked() -> None:
    sources = {task.source for task in load()}
    assert sources == {"world-1hop", "world-2hop"}
    assert {task.source for task in load(hops=[3])} == {"world-3hop"}


def test_tasks_are_made_once_in_a_process_and_slices_know_their_corpus() -> None:
    tasks = load(num_tasks=20)
    assert load(num_tasks=20) is tasks
    assert isinstance(tasks[:5], WorldTasks)
    assert (len(tasks[:5]), tasks[:5].corpus) == (5, tasks.corpus)


def test_sizes_are_the_usual_ones_unless_asked_otherwise() -> None:
    assert (len(load()), len(load(split="test")), len(load(num_tasks=7))) == (4096, 256, 7)


def test_questions_of_a_large_world_come_quickly() -> None:
    assert len(load(size=1_000_000, num_tasks=50)) == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": 4}, "world hops=4: expected 1, 2, 3, or a list of them"),
        ({"hops": []}, r"world hops=\[\]: expected 1, 2, 3"),
        ({"hops": "two"}, "world hops='two': expected 1, 2, 3"),
        ({"split": "dev"}, "world split='dev': expected 'train' or 'test'"),
        ({"num_tasks": 0}, "world num_tasks=0: expected a whole number >= 1, or None"),
        ({"size": 10}, "world size=10: expected a whole number of passages"),
        (
            {"hops": 1, "split": "test", "size": "small", "num_tasks": 601},
            "has only 600 different test questions of 1 hops",
        ),
    ],
)
def test_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        world_tasks(**options)
