"""The small world: people, each with two words for a name and six relations, for models with a few hundred tokens."""

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from mas_envs.argument_checks import is_whole
from mas_envs.errors import TaskError
from mas_envs.retrieval.protocol import Passage
from mas_envs.search.names import syllables
from mas_envs.search.relations import Kind, Relation
from mas_envs.search.world import Entity, Split

__all__ = ["SmallWorld"]

_NUM_PEOPLE = 500
_TEST_STRIDE = 5
_NUM_FIRST, _NUM_LAST = 24, 24
_RELATIONS = tuple(
    Relation(name, Kind.PERSON, Kind.PERSON, (f"{name} {{y}}",), (f"{name} of {{x}}",), (f"{name} of {{x}}",))
    for name in ("mentor", "friend", "rival", "heir", "guest", "boss")
)


@dataclass(frozen=True)
class SmallWorld:
    """An encyclopedia of 500 people in 3000 passages, one for each fact, as in `"Bari Tavo"` / `mentor Kelu Bemi`.

    Every fifth person is held out: nobody in a training question, not even as an answer. Their names are made of the
    words that training names are made of, so that a model which has only ever seen those can read them.

    Args:
        seed: Chooses names and facts.

    Raises:
        TaskError: If the seed is not a whole number.
    """

    seed: int = 0
    """Chooses names and facts."""

    def __post_init__(self) -> None:
        """Refuse a seed that is none."""
        if not is_whole(self.seed):
            raise TaskError(f"world seed={self.seed!r}: expected a whole number")

    @functools.cached_property
    def people(self) -> tuple[Entity, ...]:
        """Everybody, in the order of their ids."""
        rng = random.Random(f"small world/{self.seed}")
        words = [syllables(code, 2).capitalize() for code in rng.sample(range(70**2), _NUM_FIRST + _NUM_LAST)]
        facts: list[dict[str, str | Entity]] = [{} for _ in range(_NUM_PEOPLE)]
        people = [Entity(str(at), _name(words, at), Kind.PERSON, None, own) for at, own in enumerate(facts)]
        for number, own in enumerate(facts):
            like = [other for at, other in enumerate(people) if _is_test(at) == _is_test(number) and at != number]
            own.update(zip((each.name for each in _RELATIONS), rng.sample(like, len(_RELATIONS)), strict=True))
        return tuple(people)

    @property
    def size(self) -> int:
        """Number of passages."""
        return _NUM_PEOPLE * len(_RELATIONS)

    def passages(self) -> Iterator[Passage]:
        """All passages, in the order of their ids."""
        for person in self.people:
            for relation in _RELATIONS:
                text = relation.sentences[0].format(y=person.fact_text(relation.name))
                yield Passage(self.passage_id(person, relation), person.name, text)

    def draw_entities(self, rng: random.Random, split: Split) -> Iterator[Entity]:
        """Entities of a split, drawn at random without end."""
        people = [person for at, person in enumerate(self.people) if _is_test(at) == (split == "test")]
        while True:
            yield rng.choice(people)

    def passage_id(self, entity: Entity, relation: Relation) -> str:
        """Id of the passage that says what `entity` has by `relation`."""
        return str(int(entity.passage_id) * len(_RELATIONS) + _RELATIONS.index(relation))

    def relations(self, entity: Entity) -> tuple[Relation, ...]:
        """What can be asked about an entity."""
        return _RELATIONS


def _name(words: list[str], place: int) -> str:
    """A first and a last name, another pair for each place below 24 * 24; the last names shift by five a row."""
    first, last = place % _NUM_FIRST, (place + place // _NUM_FIRST * 5) % _NUM_LAST
    return f"{words[first]} {words[_NUM_FIRST + last]}"


def _is_test(number: int) -> bool:
    return number % _TEST_STRIDE == 0
