"""What an episode has found: its rounds, and which of the needed evidence is among the passages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mas_envs.retrieval.protocol import Passage
from mas_envs.search.scoring import normalise
from mas_envs.tasks import Task

__all__ = ["Round", "evidence_in", "gold_answers", "needed_evidence"]


@dataclass(frozen=True)
class Round:
    """What one round has brought."""

    query: str | None
    """What was sent to the retriever; None when nothing was."""
    passages: tuple[Passage, ...] = ()
    """What came back, best first."""
    fault: str | None = None
    """Why the round was lost, in words for the team; None when a query was sent."""


def gold_answers(task: Task) -> tuple[str, ...]:
    """The answers of which any is right."""
    return (task.answer,) if isinstance(task.answer, str) else task.answer


def needed_evidence(task: Task) -> tuple[str, ...]:
    """Keys of what has to be found to know the answer, in order.

    They are the ids of the supporting passages if the task's metadata has `supporting_ids`, their titles if it has
    `supporting_titles`, and otherwise a single one: some passage that contains a gold answer.
    """
    for name in ("supporting_ids", "supporting_titles"):
        if keys := task.metadata.get(name):
            return tuple(dict.fromkeys(str(key) for key in keys))
    return ("answer",)


def evidence_in(task: Task, passages: Iterable[Passage]) -> set[str]:
    """The keys of `needed_evidence` that these passages provide."""
    needed = needed_evidence(task)
    if task.metadata.get("supporting_ids"):
        return {passage.id for passage in passages} & set(needed)
    if task.metadata.get("supporting_titles"):
        titles = {normalise(passage.title) for passage in passages}
        return {title for title in needed if normalise(title) in titles}
    return set(needed) if any(_says(passage, gold_answers(task)) for passage in passages) else set()


def _says(passage: Passage, answers: Sequence[str]) -> bool:
    """Whether an answer occurs in the passage, word by word."""
    text = f" {normalise(passage.contents)} "
    return any(wanted and f" {wanted} " in text for wanted in map(normalise, answers))
