"""Comparison of two single values: numbers exactly, with their units, percent signs, ratios and bases."""

import re
from collections.abc import Callable
from fractions import Fraction

from mas_envs.math_loop.rationals import TooLargeError, exact_value, parse_number
from mas_envs.math_loop.units import DEGREE, PERCENT, Quantity, split_quantity

__all__ = ["Equal", "compare_values"]

Equal = Callable[[str, str], bool | None]
"""Whether two normalised expressions (gold first) are equal; `None` when that is not known."""

_BASE = re.compile(r"([0-9A-Z]+)_(?:\{(\d{1,2})\}|(\d))")
_MAX_BASED_DIGITS = 2_000


def compare_values(gold: str, prediction: str, equal: Equal) -> bool | None:
    """Whether two normalised single values are equal; `None` when `equal` does not know.

    A unit on one side only is ignored; two units must measure the same, and convert.

    >>> compare_values("50%", "0.5", lambda gold, prediction: None)
    True

    Raises:
        TooLargeError: If a number is too large to work out.
    """
    based = _compare_bases(gold, prediction)
    if based is not None:
        return based
    ratio = _compare_ratios(gold, prediction)
    if ratio is not None:
        return ratio
    left, right = split_quantity(gold), split_quantity(prediction)
    if left.unit == PERCENT or right.unit == PERCENT:
        return _compare_percent(left, right, equal)
    if left.unit is not None and right.unit is not None:
        if left.unit.dimensions != right.unit.dimensions:
            return False
        return _equal_quantities(left, right, equal, left.unit.factor / right.unit.factor)
    verdict = _equal_quantities(left, right, equal, Fraction(1))
    if verdict is not True and DEGREE in (left.unit, right.unit):
        turn = Fraction(1, 180) if left.unit == DEGREE else Fraction(180)
        degrees, radians = (left, right) if left.unit == DEGREE else (right, left)
        if r"\pi" in radians.value and r"\pi" not in degrees.value:
            return equal(*_ordered(f"\\frac{{({degrees.value})\\pi}}{{180}}", radians.value, swap=turn == 180))
    return verdict


def _ordered(first: str, second: str, *, swap: bool) -> tuple[str, str]:
    return (second, first) if swap else (first, second)


def _compare_bases(gold: str, prediction: str) -> bool | None:
    """Numerals with a base, such as `1011_2`; a prediction may leave the base out, a gold answer decides its own."""
    left, right = _BASE.fullmatch(gold), _BASE.fullmatch(prediction)
    if left is None:
        return None if right is None or parse_number(gold) is None else False
    if right is None:
        return prediction == left[1] if parse_number(prediction) is not None else None
    values = []
    for match in (left, right):
        base = int(match[2] or match[3])
        if not 2 <= base <= 36 or len(match[1]) > _MAX_BASED_DIGITS:
            return False
        try:
            values.append(int(match[1], base))
        except ValueError:
            return False
    return values[0] == values[1]


def _compare_ratios(gold: str, prediction: str) -> bool | None:
    if ":" not in gold or ":" not in prediction:
        return None
    pairs = []
    for text in (gold, prediction):
        parts = [parse_number(part) for part in text.split(":")]
        if any(part is None for part in parts):
            return None
        pairs.append([part for part in parts if part is not None])
    left, right = pairs
    if len(left) != len(right):
        return False
    pivot = next((index for index, part in enumerate(left) if part), None)
    if pivot is None or not right[pivot]:
        return left == right
    return all(a * right[pivot] == b * left[pivot] for a, b in zip(left, right, strict=True))


def _compare_percent(left: Quantity, right: Quantity, equal: Equal) -> bool | None:
    if left.unit == right.unit:
        return _equal_quantities(left, right, equal, Fraction(1))
    if left.unit is not None and right.unit is not None:
        return False
    hundredth = Fraction(1, 100) if left.unit == PERCENT else Fraction(100)
    as_share = _equal_quantities(left, right, equal, hundredth)
    if as_share is not False:
        return as_share
    if left.unit is None:
        value = exact_value(left.value)
        if value is not None and abs(value) < 1:
            return False
    return _equal_quantities(left, right, equal, Fraction(1))


def _equal_quantities(left: Quantity, right: Quantity, equal: Equal, factor: Fraction) -> bool | None:
    """Whether `left * factor` equals `right`, units aside."""
    factor *= Fraction(left.scale, right.scale)
    try:
        gold = exact_value(left.value)
    except TooLargeError:
        gold = None
    prediction = exact_value(right.value)
    if gold is not None and prediction is not None:
        return gold * factor == prediction
    if left.value == right.value and factor == 1:
        return True
    if r"\infty" in (left.value.lstrip("+-"), right.value.lstrip("+-")):
        return left.value.lstrip("+") == right.value.lstrip("+")
    if r"\emptyset" in (left.value, right.value) or r"\text" in left.value + right.value:
        return False
    if factor == 1:
        return equal(left.value, right.value)
    return equal(f"\\frac{{{factor.numerator}}}{{{factor.denominator}}}({left.value})", right.value)
