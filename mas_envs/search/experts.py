"""Scripted router, searcher and answerer, for warm starts and baselines; good or mediocre as `Skill` asks."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mas_envs.conversation import Skill
from mas_envs.search.evidence import Round, evidence_in, gold_answers, needed_evidence
from mas_envs.search.prompts import PromptStyle
from mas_envs.tasks import Task

__all__ = ["Knowledge", "scripted_answer", "scripted_query", "scripted_route"]


@dataclass(frozen=True)
class Knowledge:
    """What an expert knows: the task with its solution, what was found so far, and another task to err with."""

    task: Task
    """The task of the episode."""
    rounds: Sequence[Round]
    """What the episode has found."""
    decoy: Task
    """Where wrong queries and answers are taken from, so that they look like right ones."""

    @property
    def missing(self) -> list[int]:
        """Positions of the needed evidence that was not found, in order."""
        found = evidence_in(self.task, (passage for each in self.rounds for passage in each.passages))
        return [at for at, key in enumerate(needed_evidence(self.task)) if key not in found]

    def query(self) -> str:
        """The query for the first missing evidence; for the last one when none is missing."""
        queries = _queries(self.task)
        missing = self.missing
        return queries[min(missing[0] if missing else len(queries) - 1, len(queries) - 1)]

    def answer(self) -> str:
        """The answer if all evidence is there, else the last thing that was found out, else `unknown`."""
        missing = self.missing
        if not missing:
            return gold_answers(self.task)[0]
        values = self.task.metadata.get("values", ())
        return str(values[missing[0] - 1]) if 0 < missing[0] <= len(values) else "unknown"


def scripted_route(known: Knowledge, rng: random.Random, skill: Skill, style: PromptStyle) -> str:
    """A route in the environment's format, right in `skill.accuracy` of all calls."""
    is_enough = not known.missing
    verdict = "yes" if is_enough == (rng.random() < skill.accuracy) else "no"
    text = f"<verify>{verdict}</verify>"
    if style == "full":
        text = f"{'Everything needed was found' if verdict == 'yes' else 'Something is missing'}. {text}"
    return _spoilt(text, "verify", rng, skill)


def scripted_query(known: Knowledge, rng: random.Random, skill: Skill, style: PromptStyle) -> str:
    """A search block, with a query of another task in the share of calls that is not right."""
    query = known.query() if rng.random() < skill.accuracy else rng.choice(_queries(known.decoy))
    return _spoilt(_thought(f"<search>{query}</search>", "I look up what is missing.", style), "search", rng, skill)


def scripted_answer(known: Knowledge, rng: random.Random, skill: Skill, style: PromptStyle) -> str:
    """An answer block; as right as what was found allows, or another task's answer."""
    answer = known.answer() if rng.random() < skill.accuracy else gold_answers(known.decoy)[0]
    return _spoilt(_thought(f"<answer>{answer}</answer>", "I read it off.", style), "answer", rng, skill)


def _queries(task: Task) -> tuple[str, ...]:
    """Good queries, one for each piece of evidence; the question itself where the task names none."""
    return tuple(task.metadata.get("queries", ())) or (task.question,)


def _thought(text: str, thought: str, style: PromptStyle) -> str:
    return text if style == "short" else f"<think>{thought}</think> {text}"


def _spoilt(text: str, tag: str, rng: random.Random, skill: Skill) -> str:
    """The text, or with one of its tags missing in `skill.malformed` of all calls."""
    if rng.random() >= skill.malformed:
        return text
    return text.replace(rng.choice((f"<{tag}>", f"</{tag}>")), "", 1)
