"""Invented names: a number becomes a pronounceable word and no two numbers the same one, so names never clash."""

import math
import random

__all__ = ["NameBook", "syllables"]

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_PAIRS = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS)
_CODAS = ("n", "r", "l", "s", "k")
_CITY_ENDINGS = ("ford", "stad", "port", "mouth", "wick", "holm", "gate", "dale")
_COUNTRY_ENDINGS = ("ria", "land", "mark", "stan", "via")
_ADJECTIVES = (
    "Silent", "Golden", "Broken", "Distant", "Hidden", "Burning", "Frozen", "Hollow", "Crimson", "Patient", "Wandering",
    "Forgotten", "Narrow", "Restless", "Bitter", "Gentle", "Last", "Second", "Borrowed", "Painted", "Drowned", "Winter",
    "Salted", "Paper",
)  # fmt: skip
_NOUNS = (
    "Harbour", "Garden", "Mirror", "Lantern", "River", "Orchard", "Clock", "Bridge", "Letter", "Island", "Tower",
    "Song", "Voyage", "Shadow", "Market", "Cellar", "Ladder", "Window", "Anchor", "Library", "Feast", "Compass",
    "Forest", "Veil",
)  # fmt: skip
_BODIES = ("Institute", "Press", "Company", "University", "Society", "Guild", "Laboratory", "Theatre")
_BYNAMES = ("the Owl", "the Lame", "the Wise", "the Red", "the Quiet", "the Tall", "the Mapmaker", "the Left-Handed")


def syllables(code: int, count: int) -> str:
    """The word number `code` of those with `count` syllables; different codes below 70**count give different words.

    >>> syllables(0, 2), syllables(71, 2)
    ('baba', 'bebe')
    """
    pairs = []
    for _ in range(count):
        code, digit = divmod(code, len(_PAIRS))
        pairs.append(_PAIRS[digit])
    return "".join(reversed(pairs))


class NameBook:
    """Names of the entities of one world, by kind and number; equal numbers have equal names in worlds of all sizes.

    Args:
        seed: Which names come first.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"names/{seed}")
        self._steps = {
            kind: (_step(rng, capacity), rng.randrange(capacity), capacity)
            for kind, capacity in (
                ("person", 300 * 70**2),
                ("city", 70**2 * len(_CODAS) * len(_CITY_ENDINGS)),
                ("country", 70**2 * len(_COUNTRY_ENDINGS)),
                ("river", 70**3),
                ("work", len(_ADJECTIVES) * len(_NOUNS) * 70**2),
                ("organisation", 70**2 * len(_CODAS) * len(_BODIES)),
                ("alias", 70**3 * len(_CODAS)),
            )
        }
        first = random.Random(f"first names/{seed}").sample(range(70**2), 300)
        self._first_names = tuple(syllables(code, 2).capitalize() for code in first)

    def person(self, number: int) -> str:
        """First and last name; people share first names often, last names seldom, both never."""
        last, first = divmod(self._code("person", number), len(self._first_names))
        return f"{self._first_names[first]} {syllables(last, 2).capitalize()}"

    def city(self, number: int) -> str:
        """A word such as `Velonford`."""
        rest, ending = divmod(self._code("city", number), len(_CITY_ENDINGS))
        stem, coda = divmod(rest, len(_CODAS))
        return (syllables(stem, 2) + _CODAS[coda]).capitalize() + _CITY_ENDINGS[ending]

    def country(self, number: int) -> str:
        """A word such as `Zeluria`."""
        return self.country_stem(number) + _COUNTRY_ENDINGS[self._code("country", number) % len(_COUNTRY_ENDINGS)]

    def country_stem(self, number: int) -> str:
        """What the names of a country's language and money start with; two countries may share it."""
        return syllables(self._code("country", number) // len(_COUNTRY_ENDINGS), 2).capitalize()

    def river(self, number: int) -> str:
        """A name such as `Zelumo River`."""
        return f"{syllables(self._code('river', number), 3).capitalize()} River"

    def work(self, number: int) -> str:
        """A title such as `The Silent Harbour of Belu`."""
        rest, adjective = divmod(self._code("work", number), len(_ADJECTIVES))
        word, noun = divmod(rest, len(_NOUNS))
        return f"The {_ADJECTIVES[adjective]} {_NOUNS[noun]} of {syllables(word, 2).capitalize()}"

    def organisation(self, number: int) -> str:
        """A name such as `Taron Institute`."""
        rest, body = divmod(self._code("organisation", number), len(_BODIES))
        stem, coda = divmod(rest, len(_CODAS))
        return f"{(syllables(stem, 2) + _CODAS[coda]).capitalize()} {_BODIES[body]}"

    def alias(self, number: int, kind: str) -> str:
        """Another name of an entity, unlike its own; a byname for people, one word otherwise."""
        stem, coda = divmod(self._code("alias", number), len(_CODAS))
        word = (syllables(stem, 3) + _CODAS[coda]).capitalize()
        return f"{word} {_BYNAMES[number % len(_BYNAMES)]}" if kind == "person" else word

    def _code(self, kind: str, number: int) -> int:
        """A number that looks drawn at random, another one for each `number` below the capacity."""
        step, start, capacity = self._steps[kind]
        return (step * number + start) % capacity


def _step(rng: random.Random, capacity: int) -> int:
    while True:
        step = rng.randrange(capacity // 3, capacity)
        if math.gcd(step, capacity) == 1:
            return step
