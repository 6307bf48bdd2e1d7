"""The world: a seeded fictional encyclopedia of any size, generated realm by realm, that nobody can have memorised."""

import functools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mas_envs.argument_checks import is_whole
from mas_envs.errors import TaskError
from mas_envs.retrieval.protocol import Passage
from mas_envs.search.names import NameBook
from mas_envs.search.relations import RELATIONS, Kind, Relation, relations_of

__all__ = ["REALM_SIZE", "Entity", "Realm", "Split", "World"]

Split = Literal["train", "test"]

_COUNTS: Mapping[Kind, int] = {
    Kind.COUNTRY: 1, Kind.RIVER: 2, Kind.CITY: 6, Kind.PERSON: 20, Kind.WORK: 10, Kind.ORGANISATION: 6,
}  # fmt: skip
_DISTRACTORS = 5
REALM_SIZE = sum(_COUNTS.values()) + _DISTRACTORS
"""Passages of a realm: one for each entity, and some that name entities without saying anything asked for."""
_TEST_STRIDE = 5
_KEPT_REALMS = 200
_SMALLEST, _LARGEST = REALM_SIZE * _TEST_STRIDE, 1_000_000
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_PROFESSIONS = (
    "painter", "surgeon", "cartographer", "botanist", "clockmaker", "poet", "architect", "sailor", "chemist", "judge",
    "composer", "printer", "astronomer", "baker", "engineer", "gardener", "historian", "jeweller", "miller", "weaver",
)  # fmt: skip
_COINS = ("crown", "florin", "mark", "shilling", "ducat", "penny")
_REMARKS = (
    "A portrait of {x} hangs near one of {y}.",
    "{x} is often confused with {y}.",
    "An essay compares {x} with {y}.",
    "A festival honours both {x} and {y}.",
    "Old maps show {x} beside {y}.",
)


@dataclass(frozen=True)
class Entity:
    """One thing the encyclopedia has an article on."""

    passage_id: str
    """Id of its passage."""
    name: str
    """Its name, the title of its passage; unique in the world."""
    kind: Kind
    """What it is."""
    alias: str | None
    """Another name, which its passage gives."""
    facts: Mapping[str, "str | Entity"] = field(repr=False, compare=False)
    """Relation name -> the entity or the plain value it has."""

    def fact_text(self, relation: str) -> str:
        """The fact as text: a value, or an entity's name."""
        fact = self.facts[relation]
        return fact.name if isinstance(fact, Entity) else fact


@dataclass(frozen=True)
class Realm:
    """A country and all that is in it; facts never lead out of a realm, so splits by realm share no entity."""

    number: int
    """Its place in the world."""
    entities: tuple[Entity, ...]
    """Everything in it."""
    passages: tuple[Passage, ...]
    """One for each entity, then distractors."""


@dataclass(frozen=True)
class World:
    """An encyclopedia of `size` passages; the same for the same seed in every process, a prefix of every larger one.

    Args:
        size: Number of passages, from 250 to a million.
        seed: Chooses names, facts and wordings.

    Raises:
        TaskError: If an argument is out of range.
    """

    size: int = 1000
    """Number of passages."""
    seed: int = 0
    """Chooses names, facts and wordings."""

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be made."""
        if not is_whole(self.size) or not _SMALLEST <= self.size <= _LARGEST:
            raise TaskError(
                f"world size={self.size!r}: expected a whole number of passages from {_SMALLEST} to {_LARGEST}, "
                "or 'small'"
            )
        if not is_whole(self.seed):
            raise TaskError(f"world seed={self.seed!r}: expected a whole number")

    @property
    def num_realms(self) -> int:
        """Whole realms in it."""
        return self.size // REALM_SIZE

    @functools.cached_property
    def names(self) -> NameBook:
        """The names of its entities."""
        return NameBook(self.seed)

    def is_test(self, realm: int) -> bool:
        """Whether the realm's entities are held out; one realm of every five in a row is."""
        block, place = divmod(realm, _TEST_STRIDE)
        return random.Random(f"split/{self.seed}/{block}").randrange(_TEST_STRIDE) == place

    def realm(self, number: int) -> Realm:
        """The realm with that number; made anew at each call."""
        rng = random.Random(f"world/{self.seed}/{number}")
        entities = _entities(self.names, number, rng)
        passages = [_article(entity, rng) for entity in entities]
        for extra in range(_DISTRACTORS):
            subject, other = rng.sample(entities, 2)
            id = str(number * REALM_SIZE + len(entities) + extra)
            passages.append(_distractor(id, subject, other, rng, f"Notes {extra + 1}"))
        return Realm(number, tuple(entities), tuple(passages))

    def draw_entities(self, rng: random.Random, split: Split) -> Iterator[Entity]:
        """Entities of a split, drawn at random without end, several from one realm before the next."""
        numbers = [number for number in range(self.num_realms) if self.is_test(number) == (split == "test")]
        realms: dict[int, Realm] = {}
        while True:
            number = rng.choice(numbers)
            if number not in realms:
                if len(realms) >= _KEPT_REALMS:
                    realms.clear()
                realms[number] = self.realm(number)
            yield from rng.sample(realms[number].entities, len(realms[number].entities) // 2)

    def passage_id(self, entity: Entity, relation: Relation) -> str:
        """Id of the passage that says what `entity` has by `relation`."""
        return entity.passage_id

    def relations(self, entity: Entity) -> tuple[Relation, ...]:
        """What can be asked about an entity."""
        return relations_of(entity.kind)

    def passages(self) -> Iterator[Passage]:
        """All passages in the order of their ids, as a stream: memory does not grow with the size."""
        for number in range(self.num_realms):
            yield from self.realm(number).passages
        rest = self.size - self.num_realms * REALM_SIZE
        if rest:  # a realm cut short would miss facts that its own articles lead to
            rng = random.Random(f"rest/{self.seed}/{self.size}")
            entities = self.realm(self.num_realms - 1).entities
            for extra in range(rest):
                subject, other = rng.sample(entities, 2)
                id = str(self.num_realms * REALM_SIZE + extra)
                yield _distractor(id, subject, other, rng, f"Marginalia {extra + 1}")


def _entities(names: NameBook, realm: int, rng: random.Random) -> list[Entity]:
    """The entities of a realm with their facts; the last of some kinds has nearly the name of the first."""
    entities: list[Entity] = []
    facts: list[dict[str, str | Entity]] = []
    for kind, count in _COUNTS.items():
        for place in range(count):
            name = _name(names, kind, realm * count + place)
            if place > 1 and place == count - 1:
                name = _near_duplicate(kind, entities[-place].name)
            number = realm * REALM_SIZE + len(entities)
            alias = names.alias(number, kind.value) if number % 4 == 3 else None
            facts.append({})
            entities.append(Entity(str(number), name, kind, alias, facts[-1]))
    _link(entities, facts, names, realm, rng)
    return entities


def _name(names: NameBook, kind: Kind, number: int) -> str:
    book = {
        Kind.COUNTRY: names.country,
        Kind.RIVER: names.river,
        Kind.CITY: names.city,
        Kind.PERSON: names.person,
        Kind.WORK: names.work,
        Kind.ORGANISATION: names.organisation,
    }
    return book[kind](number)


def _near_duplicate(kind: Kind, name: str) -> str:
    """A name that differs from `name` in little, of a form that no other name has."""
    match kind:
        case Kind.PERSON:
            return f"{name} the Younger"
        case Kind.CITY:
            return f"New {name}"
        case Kind.WORK:
            return f"{name}, Part Two"
        case _:
            return f"Royal {name}"


def _link(
    entities: list[Entity], facts: list[dict[str, str | Entity]], names: NameBook, realm: int, rng: random.Random
) -> None:
    """Fill in the facts: they can name each other only when all entities are there."""
    by_kind = {kind: [entity for entity in entities if entity.kind is kind] for kind in Kind}
    people = by_kind[Kind.PERSON]
    couples = rng.sample(people, len(people))
    spouses = {}
    for first, second in zip(couples[::2], couples[1::2], strict=True):
        spouses[first.name], spouses[second.name] = second, first
    for entity, own in zip(entities, facts, strict=True):
        for relation in relations_of(entity.kind):
            if relation.name == "spouse":
                own["spouse"] = spouses[entity.name]
            elif relation.object is None:
                own[relation.name] = _value(relation.name, names, realm, rng)
            else:
                own[relation.name] = rng.choice([other for other in by_kind[relation.object] if other is not entity])


def _value(relation: str, names: NameBook, realm: int, rng: random.Random) -> str:
    match relation:
        case "birth_date":
            return f"{rng.randrange(1, 29)} {rng.choice(_MONTHS)} {rng.randrange(1600, 2000)}"
        case "profession":
            return rng.choice(_PROFESSIONS)
        case "currency":
            return f"{names.country_stem(realm)} {rng.choice(_COINS)}"
        case "language":
            return f"{names.country_stem(realm)}sh"
        case "length":
            return f"{rng.randrange(40, 4000)} km"
        case _:
            return str(rng.randrange(1100, 2000))


_SENTENCES = {relation.name: relation.sentences for relation in RELATIONS}


def _article(entity: Entity, rng: random.Random) -> Passage:
    """The passage on an entity: what it is called, then its facts in any order."""
    sentences = [
        rng.choice(_SENTENCES[relation]).format(x=entity.name, y=entity.fact_text(relation))
        for relation in entity.facts
    ]
    rng.shuffle(sentences)
    if entity.alias:
        sentences.insert(0, f"{entity.name} is also known as {entity.alias}.")
    return Passage(entity.passage_id, entity.name, " ".join(sentences))


def _distractor(id: str, subject: Entity, other: Entity, rng: random.Random, suffix: str) -> Passage:
    remarks = [remark.format(x=subject.name, y=other.name) for remark in rng.sample(_REMARKS, 2)]
    return Passage(id, f"{suffix} on {subject.name}", " ".join(remarks))
