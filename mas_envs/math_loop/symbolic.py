"""Equality of two expressions by sympy; imported by grading workers only.

Text becomes sympy objects through math-verify's LaTeX grammar, never through Python's evaluator. Expressions are first
compared at sample points with many digits; math-verify's own comparison has the word where that decides nothing.
"""

import functools
import itertools
import re
from collections.abc import Iterator

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, latex2sympy
from math_verify import verify

from mas_envs.math_loop.algebra_guard import refusal

__all__ = ["equal"]

_DIGITS = 40
_TOLERANCE = sympy.Float(10) ** -25
_POINTS = ("11/8", "21/8", "4/7", "-6/5", "-3/8", "19/6")
_WHOLE_POINTS = ("3", "4", "6", "7")
_NEEDED_POINTS = 3
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\^\\circ")
_RELATIONS = (r"\leq", r"\geq", r"\neq", "=", "<", ">")
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)


def equal(gold: str, prediction: str) -> bool:
    """Whether two normalised expressions, or two relations with the same sign, mean the same; gold first."""
    for text in (prediction, gold):
        if refusal(text) is not None:
            return False
    relation = next((sign for sign in _RELATIONS if sign in gold), None)
    if relation is not None:
        return _equal_relations(gold, prediction, relation)
    left, right = _parsed(gold), _parsed(prediction)
    if left is None or right is None:
        return False
    sampled = _zero_at_samples(left, right)
    return sampled if sampled is not None else bool(verify(left, right, timeout_seconds=None))


def _equal_relations(gold: str, prediction: str, relation: str) -> bool:
    """Whether the differences of both sides are multiples of each other (positive ones for an inequality)."""
    differences = []
    for text in (gold, prediction):
        sides = text.split(relation)
        if len(sides) != 2:
            return False
        left, right = _parsed(sides[0]), _parsed(sides[1])
        if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
            return False
        differences.append(left - right)
    names = _names(*differences)
    if differences[0].free_symbols != differences[1].free_symbols:
        return False
    ratios = []
    for point in _points(names, _POINTS):
        first, second = (_at(difference, point) for difference in differences)
        if first is not None and second is not None and abs(first) > _TOLERANCE:
            ratios.append(second / first)
    if len(ratios) < _NEEDED_POINTS or abs(ratios[0]) < _TOLERANCE:
        return False
    if relation not in ("=", r"\neq") and not sympy.re(ratios[0]) > 0:
        return False
    return all(abs(ratio - ratios[0]) <= _TOLERANCE * (1 + abs(ratios[0])) for ratio in ratios)


@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> sympy.Basic | None:
    """The expression, `i` the imaginary unit and decimals exact; None if it is not in the grammar."""
    text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    try:
        parsed = latex2sympy(text, is_real=False, normalization_config=_NORMALIZATION, conversion_config=_CONVERSION)
        if not isinstance(parsed, sympy.Basic):
            return None
        if isinstance(parsed, sympy.Expr):
            parsed = parsed.xreplace({number: sympy.Rational(str(number)) for number in parsed.atoms(sympy.Float)})
            units = {"i": sympy.I, "e": sympy.E}
            parsed = parsed.subs({name: units[name.name] for name in parsed.free_symbols if name.name in units})
    except Exception:  # noqa: BLE001 - the parser raises plain exceptions; what it cannot read is not an answer
        return None
    return parsed


def _names(*expressions: sympy.Basic) -> list[sympy.Symbol]:
    return sorted(set().union(*(expression.free_symbols for expression in expressions)), key=lambda name: str(name))


def _points(names: list[sympy.Symbol], values: tuple[str, ...]) -> Iterator[dict[sympy.Symbol, sympy.Rational]]:
    numbers = [sympy.Rational(value) for value in values]
    for shift in range(len(numbers)):
        cycle = itertools.islice(itertools.cycle(numbers), shift, None)
        yield {
            name: number + sympy.Rational(index // len(numbers), 7)
            for index, (name, number) in enumerate(zip(names, cycle, strict=False))
        }


def _at(expression: sympy.Expr, point: dict[sympy.Symbol, sympy.Rational]) -> sympy.Expr | None:
    """The value at a point, None where there is none."""
    try:
        value = expression.subs(point).doit().evalf(_DIGITS)
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        return None
    if not isinstance(value, sympy.Expr) or not value.is_number or value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        return None
    real, imaginary = value.as_real_imag()
    return value if real.is_Number and imaginary.is_Number else None


def _zero_at_samples(gold: sympy.Basic, prediction: sympy.Basic) -> bool | None:
    """Whether both agree at sample points; None where too few points say anything."""
    if not isinstance(gold, sympy.Expr) or not isinstance(prediction, sympy.Expr):
        return None
    names = _names(gold, prediction)
    for values in (_POINTS, _WHOLE_POINTS):
        agreed = 0
        for point in _points(names, values) if names else [{}]:
            left, right = _at(gold, point), _at(prediction, point)
            if left is None or right is None:
                continue
            if names and any(abs(sympy.im(value)) > _TOLERANCE for value in (left, right)) and not _is_complex(gold):
                continue
            if abs(left - right) > _TOLERANCE * (1 + abs(left)):
                return False
            agreed += 1
        if agreed >= (_NEEDED_POINTS if names else 1):
            return True
    return None


def _is_complex(expression: sympy.Expr) -> bool:
    return bool(expression.has(sympy.I))
