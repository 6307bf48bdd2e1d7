"""Questions about the world, one to three hops deep, and the registered task set `world`."""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mas_envs.argument_checks import is_whole
from mas_envs.errors import TaskError
from mas_envs.search.relations import Relation
from mas_envs.search.small_world import SmallWorld
from mas_envs.search.world import Entity, Split, World
from mas_envs.tasks import Task, TaskSet

__all__ = ["Corpus", "WorldTasks", "make_corpus", "world_tasks"]

Corpus = World | SmallWorld
"""An encyclopedia that tasks ask about."""
_USUAL = {"train": 4096, "test": 256}
_ALIAS_SHARE = 0.2
_MOST_MISSES = 20_000


class WorldTasks(TaskSet):
    """Tasks that know the encyclopedia they ask about, so that the environment can index it.

    Args:
        tasks: The tasks.
        corpus: What they ask about.
        name: What reports call the set.
    """

    def __init__(self, tasks: Sequence[Task], corpus: Corpus, *, name: str) -> None:
        super().__init__(tasks, name=name)
        self.corpus = corpus

    def __getitem__(self, index: Any) -> Any:  # Any: the overloads of the base
        """A task, or a part of the set that still knows its corpus."""
        if isinstance(index, slice):
            return WorldTasks([self._tasks[i] for i in range(*index.indices(len(self)))], self.corpus, name=self.name)
        return self._tasks[index]


@dataclass(frozen=True)
class _Chain:
    """An entity and the relations to follow from it."""

    subjects: tuple[Entity, ...]
    """The entity asked about, then the one each hop but the last leads to."""
    relations: tuple[Relation, ...]
    """One for each hop."""

    @property
    def answer(self) -> "str | Entity":
        return self.subjects[-1].facts[self.relations[-1].name]

    @property
    def key(self) -> str:
        return "/".join((self.subjects[0].passage_id, *(relation.name for relation in self.relations)))


def world_tasks(
    *,
    hops: int | Sequence[int] = (1, 2),
    split: Split = "train",
    size: int | Literal["small"] = 1000,
    num_tasks: int | None = None,
    seed: int = 0,
) -> TaskSet:
    """Questions about the seeded encyclopedia, all different, the same for the same arguments in every process.

    The entities of the test split occur in no training question, not as a step on the way and not as an answer.
    `metadata` holds `hops`, `supporting_titles` and `supporting_ids` (the passages that say what is needed, in order),
    `queries` (one good query for each), `values` (what each says) and `answer_aliases`.

    >>> tasks = world_tasks(hops=2, num_tasks=3)
    >>> len(tasks), len(tasks[0].metadata["supporting_titles"])
    (3, 2)

    Args:
        hops: Facts that have to be put together: 1, 2, 3, or several of them, drawn equally often.
        split: `train` or `test`.
        size: Passages of the encyclopedia, 250 to a million; `small` is one for tiny models, whose names are two
            words out of few.
        num_tasks: Number of tasks; None is 4096 (train) or 256 (test), fewer where there are no more.
        seed: Chooses the encyclopedia and the questions.

    Raises:
        TaskError: If an argument is out of range, or there are fewer than `num_tasks` questions.
    """
    depths = (hops,) if is_whole(hops) else tuple(hops) if isinstance(hops, list | tuple) else ()
    if not depths or not all(is_whole(depth) and 1 <= depth <= 3 for depth in depths):
        raise TaskError(f"world hops={hops!r}: expected 1, 2, 3, or a list of them")
    if split not in ("train", "test"):
        raise TaskError(f"world split={split!r}: expected 'train' or 'test'")
    if num_tasks is not None and not (is_whole(num_tasks) and num_tasks >= 1):
        raise TaskError(f"world num_tasks={num_tasks!r}: expected a whole number >= 1, or None for the usual number")
    tasks = _tasks(make_corpus(size, seed), depths, split, num_tasks or _USUAL[split])
    if len(tasks) < (num_tasks or 1):
        raise TaskError(
            f"the world of size {size!r} has only {len(tasks)} different {split} questions of {hops!r} hops, not "
            f"{num_tasks}; lower num_tasks, or raise size"
        )
    return tasks


@functools.lru_cache(maxsize=16)
def _tasks(corpus: Corpus, depths: tuple[int, ...], split: Split, limit: int) -> WorldTasks:
    """Drawn once in a process: every environment of a team asks for the same, and they never change."""
    rng = random.Random(f"questions/{corpus.seed}/{split}/{corpus.size}/{depths}")
    return WorldTasks(_draw(corpus, rng, depths, split, limit), corpus, name=f"world-{split}")


def make_corpus(size: int | Literal["small"], seed: int) -> Corpus:
    """The encyclopedia of that size and seed.

    Raises:
        TaskError: If an argument is out of range.
    """
    return SmallWorld(seed) if size == "small" else World(size, seed)


def _draw(corpus: Corpus, rng: random.Random, depths: Sequence[int], split: Split, limit: int) -> list[Task]:
    """Up to `limit` tasks, no chain twice; fewer when new ones hardly turn up any more."""
    tasks: dict[str, Task] = {}
    misses = 0
    for entity in corpus.draw_entities(rng, split):
        if len(tasks) >= limit or misses >= _MOST_MISSES:
            break
        chain = _chain(corpus, entity, rng.choice(depths), rng)
        if chain is None or chain.key in tasks:
            misses += 1
            continue
        misses = 0
        tasks[chain.key] = _task(corpus, chain, rng)
    return list(tasks.values())


def _chain(corpus: Corpus, entity: Entity, depth: int, rng: random.Random) -> _Chain | None:
    """A walk of `depth` facts from `entity` that comes to no entity twice; None when it ran into a dead end."""
    subjects, relations = [entity], list[Relation]()
    for hop in range(depth):
        relation = rng.choice(corpus.relations(subjects[-1]))
        found = subjects[-1].facts[relation.name]
        relations.append(relation)
        if hop == depth - 1:
            return None if found in subjects else _Chain(tuple(subjects), tuple(relations))
        if not isinstance(found, Entity) or found in subjects:
            return None
        subjects.append(found)
    return None


def _task(corpus: Corpus, chain: _Chain, rng: random.Random) -> Task:
    subject, hops = chain.subjects[0], len(chain.relations)
    phrase = subject.alias if subject.alias and rng.random() < _ALIAS_SHARE else subject.name
    for relation in chain.relations[:-1]:
        phrase = rng.choice(relation.nouns).format(x=phrase)
    question = rng.choice(chain.relations[-1].questions).format(x=phrase).replace("the the ", "the ")
    steps = list(zip(chain.subjects, chain.relations, strict=True))
    answer = chain.answer
    return Task(
        id=f"world/{chain.key}",
        question=question,
        answer=answer.name if isinstance(answer, Entity) else answer,
        source=f"world-{hops}hop",
        metadata={
            "hops": hops,
            "supporting_titles": tuple(entity.name for entity, _ in steps),
            "supporting_ids": tuple(corpus.passage_id(entity, relation) for entity, relation in steps),
            "queries": tuple(relation.nouns[0].format(x=entity.name) for entity, relation in steps),
            "values": tuple(entity.fact_text(relation.name) for entity, relation in steps),
            "answer_aliases": (answer.alias,) if isinstance(answer, Entity) and answer.alias else (),
        },
    )
