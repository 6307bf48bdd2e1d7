"""Presets for the problem sets of the paper: filtered DAPO-Math, AIME'24 and '25, AMC'23, MATH-500, OlympiadBench."""

import re
from collections.abc import Mapping
from typing import Any

from mas_envs.errors import TaskError
from mas_envs.hub_tasks import HubDataset
from mas_envs.task_files import task_from_row
from mas_envs.tasks import Task

__all__ = ["PRESETS", "problem_from_row"]

_INSTRUCTION = re.compile(r"(?:\s|\\n)*let'?s\s+think\s+step\s+by\s+step[^.]*\\boxed\s*\{\s*\}\.?\s*\Z", re.IGNORECASE)
"""What ends the published problems; the environment has instructions of its own."""


def problem_from_row(row: object, *, default_id: str, default_source: str) -> Task:
    r"""A task from the published layout: `prompt` is a chat of one message, `reward_model` holds `ground_truth`.

    The instruction at the end of the problem is removed.

    >>> row = {"prompt": [{"content": "1+1? Let's think step by step and output the final answer within \\boxed{}."}],
    ...        "reward_model": {"ground_truth": "2"}}
    >>> problem_from_row(row, default_id="a", default_source="sums").question
    '1+1?'

    Raises:
        TaskError: If a field is missing or of the wrong type; names the field.
    """
    if not isinstance(row, Mapping):
        raise TaskError(f"expected an object with 'prompt' and 'reward_model', got {row!r:.60}")
    prompt, reward = row.get("prompt"), row.get("reward_model")
    if not (isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], Mapping)):
        raise TaskError(f"field 'prompt': expected a list of one message, got {prompt!r:.60}")
    if not (isinstance(reward, Mapping) and "ground_truth" in reward):
        raise TaskError(f"field 'reward_model': expected an object with 'ground_truth', got {reward!r:.60}")
    text = prompt[0].get("content")
    question = _INSTRUCTION.sub("", text) if isinstance(text, str) else text
    plain: dict[str, Any] = {"question": question, "answer": reward["ground_truth"], "source": default_source}
    return task_from_row(plain, default_id=default_id, default_source=default_source)


PRESETS: Mapping[str, HubDataset] = {
    "dapo_filter": HubDataset("aaabiao/dapo_filter", read_row=problem_from_row),
    "aime24": HubDataset("HuggingFaceH4/aime_2024", source="aime24"),
    "aime25": HubDataset("MathArena/aime_2025", source="aime25"),
    "amc23": HubDataset("knoveleng/AMC-23", source="amc23"),
    "math500": HubDataset("HuggingFaceH4/MATH-500", split="test", source="math500"),
    "olympiadbench": HubDataset("realtreetune/olympiadbench", split="test", source="olympiadbench"),
}
"""Name -> data set, as the published preparation script names them; `dapo_filter` is the training set."""
