"""What the world's encyclopedia says about its entities, in several wordings: 27 relations between six kinds."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RELATIONS", "Kind", "Relation", "relations_of"]


class Kind(StrEnum):
    """What an entity is."""

    PERSON = "person"
    CITY = "city"
    COUNTRY = "country"
    RIVER = "river"
    WORK = "work"
    ORGANISATION = "organisation"


@dataclass(frozen=True)
class Relation:
    """One thing an entity has exactly one of."""

    name: str
    """Such as `birthplace`."""
    subject: Kind
    """Kind of entity that has it."""
    object: Kind | None
    """Kind of entity it is; None for a plain value such as a date."""
    sentences: tuple[str, ...]
    """How a passage says that `{x}` has `{y}`."""
    nouns: tuple[str, ...]
    """How a question refers to what `{x}` has."""
    questions: tuple[str, ...]
    """How a question asks for what `{x}` has."""


P, C, N, R, W, O = Kind.PERSON, Kind.CITY, Kind.COUNTRY, Kind.RIVER, Kind.WORK, Kind.ORGANISATION  # noqa: E741

RELATIONS: tuple[Relation, ...] = (
    Relation(
        "birth_date", P, None,
        ("{x} was born on {y}.", "The birth of {x} is dated {y}."),
        ("the date of birth of {x}",),
        ("When was {x} born?", "On which date was {x} born?", "What is the date of birth of {x}?"),
    ),
    Relation(
        "birthplace", P, C,
        ("{x} was born in {y}.", "The birthplace of {x} is {y}."),
        ("the birthplace of {x}", "the city where {x} was born"),
        ("Where was {x} born?", "In which city was {x} born?"),
    ),
    Relation(
        "profession", P, None,
        ("{x} was {y} by profession.", "The profession of {x} was {y}."),
        ("the profession of {x}",),
        ("What was the profession of {x}?", "What did {x} do for a living?"),
    ),
    Relation(
        "teacher", P, P,
        ("{x} was taught by {y}.", "The teacher of {x} was {y}."),
        ("the teacher of {x}", "the person who taught {x}"),
        ("Who taught {x}?", "Who was the teacher of {x}?"),
    ),
    Relation(
        "spouse", P, P,
        ("{x} was married to {y}.", "The spouse of {x} was {y}."),
        ("the spouse of {x}", "the person married to {x}"),
        ("Who was married to {x}?", "Who was the spouse of {x}?"),
    ),
    Relation(
        "employer", P, O,
        ("{x} was employed by the {y}.", "The employer of {x} was the {y}."),
        ("the employer of {x}", "the organisation that employed {x}"),
        ("Which organisation employed {x}?", "Who was the employer of {x}?"),
    ),
    Relation(
        "alma_mater", P, O,
        ("{x} studied at the {y}.", "The alma mater of {x} is the {y}."),
        ("the alma mater of {x}", "the place where {x} studied"),
        ("Where did {x} study?", "What is the alma mater of {x}?"),
    ),
    Relation(
        "country", C, N,
        ("{x} is a city in {y}.", "The country of {x} is {y}."),
        ("the country of {x}", "the country in which {x} lies"),
        ("In which country is {x}?", "What is the country of {x}?"),
    ),
    Relation(
        "mayor", C, P,
        ("The mayor of {x} is {y}.", "{x} is led by its mayor, {y}."),
        ("the mayor of {x}",),
        ("Who is the mayor of {x}?", "Which person is mayor of {x}?"),
    ),
    Relation(
        "founding_year", C, None,
        ("{x} was founded as a city in {y}.", "The founding year of {x} is {y}."),
        ("the founding year of {x}",),
        ("In which year was {x} founded?", "What is the founding year of {x}?"),
    ),
    Relation(
        "river", C, R,
        ("{x} lies on the {y}.", "The river of {x} is the {y}."),
        ("the river of {x}", "the river on which {x} lies"),
        ("On which river does {x} lie?", "What is the river of {x}?"),
    ),
    Relation(
        "twin_city", C, C,
        ("The twin city of {x} is {y}.", "{x} is twinned with {y}."),
        ("the twin city of {x}", "the city twinned with {x}"),
        ("What is the twin city of {x}?", "Which city is twinned with {x}?"),
    ),
    Relation(
        "capital", N, C,
        ("The capital of {x} is {y}.", "{x} is governed from its capital, {y}."),
        ("the capital of {x}",),
        ("What is the capital of {x}?", "Which city is the capital of {x}?"),
    ),
    Relation(
        "ruler", N, P,
        ("The ruler of {x} is {y}.", "{x} is ruled by {y}."),
        ("the ruler of {x}", "the person who rules {x}"),
        ("Who rules {x}?", "Who is the ruler of {x}?"),
    ),
    Relation(
        "currency", N, None,
        ("The currency of {x} is the {y}.", "In {x} people pay with the {y}, its currency."),
        ("the currency of {x}",),
        ("What is the currency of {x}?", "Which currency is used in {x}?"),
    ),
    Relation(
        "language", N, None,
        ("The language of {x} is {y}.", "People in {x} speak the {y} language."),
        ("the language of {x}",),
        ("What is the language of {x}?", "Which language is spoken in {x}?"),
    ),
    Relation(
        "length", R, None,
        ("The length of the {x} is {y}.", "The {x} has a length of {y}."),
        ("the length of the {x}",),
        ("How long is the {x}?", "What is the length of the {x}?"),
    ),
    Relation(
        "mouth", R, C,
        ("The {x} reaches the sea at {y}.", "The mouth of the {x} is at {y}."),
        ("the city at the mouth of the {x}",),
        ("At which city does the {x} reach the sea?", "Which city is at the mouth of the {x}?"),
    ),
    Relation(
        "author", W, P,
        ("{x} was written by {y}.", "The author of {x} is {y}."),
        ("the author of {x}", "the person who wrote {x}"),
        ("Who wrote {x}?", "Who is the author of {x}?"),
    ),
    Relation(
        "publication_year", W, None,
        ("{x} was published in the year {y}.", "The publication year of {x} is {y}."),
        ("the publication year of {x}",),
        ("In which year was {x} published?", "What is the publication year of {x}?"),
    ),
    Relation(
        "publisher", W, O,
        ("{x} was published by the {y}.", "The publisher of {x} is the {y}."),
        ("the publisher of {x}",),
        ("Which organisation published {x}?", "Who is the publisher of {x}?"),
    ),
    Relation(
        "setting", W, C,
        ("{x} is set in {y}.", "The setting of {x} is {y}."),
        ("the setting of {x}", "the city in which {x} is set"),
        ("In which city is {x} set?", "What is the setting of {x}?"),
    ),
    Relation(
        "dedicatee", W, P,
        ("{x} is dedicated to {y}.", "The dedicatee of {x} is {y}."),
        ("the dedicatee of {x}", "the person to whom {x} is dedicated"),
        ("To whom is {x} dedicated?", "Who is the dedicatee of {x}?"),
    ),
    Relation(
        "founder", O, P,
        ("The {x} was founded by {y}.", "The founder of the {x} is {y}."),
        ("the founder of the {x}", "the person who founded the {x}"),
        ("Who founded the {x}?", "Who is the founder of the {x}?"),
    ),
    Relation(
        "headquarters", O, C,
        ("The headquarters of the {x} are in {y}.", "The {x} has its headquarters in {y}."),
        ("the city with the headquarters of the {x}",),
        ("In which city are the headquarters of the {x}?", "Where does the {x} have its headquarters?"),
    ),
    Relation(
        "establishment_year", O, None,
        ("The {x} was established in the year {y}.", "The establishment year of the {x} is {y}."),
        ("the establishment year of the {x}",),
        ("In which year was the {x} established?", "What is the establishment year of the {x}?"),
    ),
    Relation(
        "director", O, P,
        ("The director of the {x} is {y}.", "The {x} is headed by its director, {y}."),
        ("the director of the {x}",),
        ("Who is the director of the {x}?", "Who heads the {x}?"),
    ),
)  # fmt: skip


def relations_of(kind: Kind) -> tuple[Relation, ...]:
    """The relations an entity of that kind has."""
    return tuple(relation for relation in RELATIONS if relation.subject is kind)
