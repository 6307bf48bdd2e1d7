"""Units behind (or currency before) a value: what they measure, and how they convert."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

__all__ = ["Quantity", "Unit", "split_quantity"]

_SCALES = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
}  # fmt: skip
_KNOWN = {
    "length": {
        "m meter metre": "1", "cm centimeter centimetre": "1/100", "mm millimeter millimetre": "1/1000",
        "km kilometer kilometre": "1000", "in inch inches": "127/5000", "ft foot feet": "381/1250",
        "yd yard": "1143/1250", "mi mile": "201168/125",
    },
    "time": {
        "s sec second": "1", "min minute": "60", "h hr hour": "3600", "day": "86400", "week": "604800",
        "ms millisecond": "1/1000", "fortnight": "1209600",
    },
    "calendar": {"month": "1", "year yr": "12", "decade": "120", "century centuries": "1200"},
    "mass": {"g gram": "1", "kg kilogram": "1000", "mg milligram": "1/1000", "tonne": "1000000"},
    "weight": {"oz ounce": "1", "lb pound": "16"},
    "volume": {"l liter litre": "1", "ml milliliter millilitre": "1/1000"},
    "cups": {"cup": "2", "pint": "4", "quart": "8", "gallon gal": "32"},
    "money": {"dollar buck usd": "1", "cent": "1/100"},
    "coins": {"euro eur": "1"},
    "angle": {"degree deg": "1", "revolution": "360"},
}  # fmt: skip
_BASE = {
    word: (dimension, Fraction(factor))
    for dimension, units in _KNOWN.items()
    for words, factor in units.items()
    for word in words.split()
}
_COMPOUND = {"mph": "mile/hour", "kph": "km/hour", "kmh": "km/hour", "kmph": "km/hour", "fps": "feet/second"}
_NOT_UNITS = frozenset(
    "or and not plus minus times over maybe if but except is case no yes than with option answer choice type".split()
)
_TAIL = re.compile(
    r"(?:%|\^\\circ(?:\s*\\text\{[CFcf]\}|[CF](?![A-Za-z]))?|\\pmod\s*(?:\{[^{}]*\}|\d+)"
    r"|\\(?:euro|pounds)(?![A-Za-z])|(?:/|\\cdot|\\text\{[^{}]*\}(?:\^(?:\{-?\d\}|\d))?)*\\text\{[^{}]*\}(?:\^(?:\{-?\d\}|\d))?)\Z"
)
_CURRENCY = re.compile(r"(-?)\\dollar\s*|(-?)([€£¥])\s*")
_BARE = re.compile(r"(?<=\d)\s*([A-Za-z]{2,})((?:\^(?:\{\d\}|\d))?)(?:/([A-Za-z]{1,}))?\Z")
_PIECE = re.compile(r"(/|per\b)|([A-Za-z]+)(?:\^\{?(-?\d)\}?)?")
_MAX_UNIT_CHARS = 80


@dataclass(frozen=True)
class Unit:
    """What a value is measured in; units with equal `dimensions` convert by their factors."""

    dimensions: tuple[tuple[str, int], ...]
    """Name and power of each dimension, sorted; a word this module does not know is its own dimension."""
    factor: Fraction
    """Size in the base unit of its dimensions."""


@dataclass(frozen=True)
class Quantity:
    """A value and its unit."""

    value: str
    """Normalised text of the value."""
    unit: Unit | None
    """None when there is no unit; percent and degrees are units."""
    scale: int = 1
    """From words such as `million`."""


PERCENT = Unit((("percent", 1),), Fraction(1, 100))
DEGREE = Unit((("angle", 1),), Fraction(1))


@lru_cache(maxsize=4096)
def split_quantity(text: str) -> Quantity:
    r"""The value and the unit of a normalised answer.

    >>> split_quantity(r"30\text{cm}^2").unit == split_quantity(r"30\text{square centimeters}").unit
    True
    """
    currency = _CURRENCY.match(text)
    unit: Unit | None = None
    if currency is not None:
        sign = currency[1] or currency[2] or ""
        text = sign + text[currency.end() :]
        unit = Unit(((currency[3] or "money", 1),), Fraction(1))
    scale = 1
    while True:
        bare = _BARE.search(text, max(0, len(text) - _MAX_UNIT_CHARS))
        if bare is not None and bare[1].casefold().rstrip("s") in _UNIT_WORDS:
            tail, start = bare[1] + bare[2] + (f"/{bare[3]}" if bare[3] else ""), bare.start()
        else:
            found = _TAIL.search(text, max(0, len(text) - _MAX_UNIT_CHARS))
            if found is None or found.start() == 0:
                break
            tail, start = found[0], found.start()
        words = _spelled(tail)
        if words.casefold() in _SCALES:
            scale *= _SCALES[words.casefold()]
        elif unit is None or words.casefold() in ("dollars", "dollar", "usd"):
            parsed = _unit(tail, words)
            if parsed is None:
                break
            unit = parsed
        else:
            break
        text = text[:start].rstrip()
    return Quantity(text, unit, scale)


def _spelled(tail: str) -> str:
    return " ".join(re.sub(r"\\text\{([^{}]*)\}", r" \1", tail).split())


def _unit(tail: str, words: str) -> Unit | None:
    if tail == "%":
        return PERCENT
    if tail == r"^\circ":
        return DEGREE
    if tail.startswith(r"^\circ"):
        return Unit((("temperature " + words[-1].upper(), 1),), Fraction(1))
    if tail.startswith(r"\pmod"):
        return Unit(((tail.strip("{} ").replace("{", ""), 1),), Fraction(1))
    folded = [word.strip(".,").casefold() for word in re.split(r"[\s/]+", words)]
    if len(folded) > 5 or any(word in _NOT_UNITS for word in folded) or any("(" in word for word in folded):
        return None
    for scale in _SCALES:
        if scale in folded:
            return None
    return _compose(words)


def _compose(words: str) -> Unit | None:
    powers: dict[str, int] = {}
    factor = Fraction(1)
    sign, pending = 1, 1
    words = words.replace(".", "")
    for match in _PIECE.finditer(_COMPOUND.get(words.casefold(), words)):
        if match[1]:
            sign = -1
            continue
        word = match[2].casefold() if len(match[2]) > 1 else match[2]
        if word in ("square", "sq", "squared", "cubic", "cubed"):
            pending = 2 if word.startswith("sq") else 3
            continue
        if word == "of":
            break
        dimension, size = _lookup(word)
        power = sign * int(match[3] or pending)
        pending = 1
        powers[dimension] = powers.get(dimension, 0) + power
        factor *= size**power
    if not powers:
        return None
    return Unit(tuple(sorted((name, power) for name, power in powers.items() if power)), factor)


def _lookup(word: str) -> tuple[str, Fraction]:
    for form in (word, word.removesuffix("s"), word.removesuffix("es")):
        if form in _BASE:
            return _BASE[form]
    return word.removesuffix("s") or word, Fraction(1)


_UNIT_WORDS = frozenset(_BASE) | frozenset(_COMPOUND) | {"feet", "inche"}
