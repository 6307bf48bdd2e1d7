"""A corpus of a thousand passages, and what every retriever has to do with it."""

import functools

from mas_envs.retrieval.protocol import Passage
from mas_envs.search.questions import WorldTasks, world_tasks

__all__ = ["passages", "recall", "tasks"]


@functools.cache
def tasks() -> WorldTasks:
    found = world_tasks(hops=(1, 2), num_tasks=150)
    assert isinstance(found, WorldTasks)
    return found


@functools.cache
def passages() -> tuple[Passage, ...]:
    return tuple(tasks().corpus.passages())


def recall(search: object, k: int) -> float:
    """The share of good queries whose passage is among the first k."""
    assert callable(search)
    wanted = [
        (query, id)
        for task in tasks()
        for query, id in zip(task.metadata["queries"], task.metadata["supporting_ids"], strict=True)
    ]
    found = search([query for query, _ in wanted], k)
    return sum(any(p.id == id for p in row) for row, (_, id) in zip(found, wanted, strict=True)) / len(wanted)
