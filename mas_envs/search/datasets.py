"""Presets for the question-answering sets of the paper: NQ, TriviaQA, PopQA, HotpotQA, 2Wiki, MuSiQue, Bamboogle."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mas_envs.hub_tasks import HubDataset
from mas_envs.task_files import task_from_row
from mas_envs.tasks import Task

__all__ = ["PRESETS", "question_from_row"]

_HUB = "RUC-NLPIR/FlashRAG_datasets"
_TRAINING_HUB = "PeterJinGo/nq_hotpotqa_train"


def question_from_row(row: object, *, default_id: str, default_source: str) -> Task:
    """A task from the published layout: `question`, `golden_answers`, `data_source`.

    `metadata` is the row's own, with `supporting_titles` added where it names supporting facts: each title once, in
    order. Ids are led by the source, because files with several sources number each from the start.

    Raises:
        TaskError: If a field is missing or of the wrong type; names the field.
    """
    task = task_from_row(row, default_id=default_id, default_source=default_source)
    metadata = {name: value for name, value in task.metadata.items() if value is not None}
    if titles := _supporting_titles(metadata):
        metadata["supporting_titles"] = titles
    prefix = f"{task.source}/"
    id = task.id if task.id.startswith(prefix) else prefix + task.id
    return replace(task, id=id, question=task.question.strip(), metadata=metadata)


def _supporting_titles(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Titles from `supporting_titles` or `supporting_facts`, the latter columns or pairs of title and sentence."""
    if named := metadata.get("supporting_titles"):
        return tuple(map(str, named))
    facts = metadata.get("supporting_facts")
    if isinstance(facts, Mapping):
        facts = facts.get("title")
    if not isinstance(facts, Iterable) or isinstance(facts, str):
        return ()
    titles = [fact if isinstance(fact, str) else fact[0] for fact in facts if fact]
    return tuple(dict.fromkeys(map(str, titles)))


def _preset(config: str, split: str) -> HubDataset:
    return HubDataset(_HUB, config, split, config, question_from_row)


PRESETS: Mapping[str, HubDataset] = {
    "nq": _preset("nq", "test"),
    "triviaqa": _preset("triviaqa", "test"),
    "popqa": _preset("popqa", "test"),
    "hotpotqa": _preset("hotpotqa", "dev"),
    "2wikimultihopqa": _preset("2wikimultihopqa", "dev"),
    "2wiki": _preset("2wikimultihopqa", "dev"),
    "musique": _preset("musique", "dev"),
    "bamboogle": _preset("bamboogle", "test"),
    "nq_hotpotqa": HubDataset(_TRAINING_HUB, None, "train", None, question_from_row),
}
"""Name -> data set; the split is the one that published results are measured on, `nq_hotpotqa` is the training mix."""
