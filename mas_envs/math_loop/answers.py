"""Whether two plain answers say the same, decided by kind: numbers exactly, units, lists, intervals, relations, text.

`compare` works on normalised text and leaves to its caller only what needs algebra: two expressions with names or
irrational constants. The same code runs in the trainer's process (which cannot do algebra and hears `None`) and in a
grading worker (which can).
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from mas_envs.math_loop.latex_text import strip_outer_brackets
from mas_envs.math_loop.rationals import TooLargeError, exact_value, parse_number
from mas_envs.math_loop.structure import Collection, Leaf, Matrix, Relation, is_name, read
from mas_envs.math_loop.units import DEGREE, PERCENT, Quantity, split_quantity

__all__ = ["Equal", "compare", "needs_algebra"]

Equal = Callable[[str, str], bool | None]
"""Whether two normalised expressions (gold first) are equal; `None` when that is not known."""

_MAX_ITEMS = 32
_MAX_NESTING = 40
_MAX_EXPRESSION_CHARS = 4_000
_MAX_EXPONENT = 20_000
_FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"}
_WORD_GROUP = re.compile(r"\\text\{([^{}]*)\}")
_CHOICE_LABEL = re.compile(r"(?:\\text\{)?\(?([A-Za-z])(?:\)|[.:]|\Z)\}?\s*(?:\\text\{)?(.*)", re.DOTALL)
_CODE = re.compile(r"__|[\"`@#]|\\text\{(?:lambda|import|exit|eval|exec)")
_BIG_FACTORIAL = re.compile(r"\d{5}\s*\)?!|!\)*!")
_BASE = re.compile(r"([0-9A-Z]+)_(?:\{(\d{1,2})\}|(\d))")
_LETTERS = re.compile(r"[^a-z0-9]+")


def compare(gold: str, prediction: str, equal: Equal) -> bool | None:
    """Whether the prediction says what the gold answer says; both normalised.

    Args:
        gold: Reference answer.
        prediction: Answer to judge.
        equal: Decides two single expressions that exact arithmetic cannot.

    Returns:
        `None` when `equal` returned it for an expression that matters.
    """
    if not gold or not prediction:
        return False
    if gold == prediction:
        return True
    return _compare(gold, prediction, equal, 0)


def needs_algebra(expression: str) -> str | None:
    """Why an expression is not worth handing to a symbolic system; `None` when it is fine."""
    if len(expression) > _MAX_EXPRESSION_CHARS:
        return "the expression is too long"
    depth = deepest = 0
    for char in expression:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > _MAX_NESTING:
        return "the expression is nested too deeply"
    if _CODE.search(expression):
        return "the expression is program code, not mathematics"
    if _BIG_FACTORIAL.search(expression):
        return "a factorial is too large to evaluate"
    for exponent in _exponents(expression):
        try:
            value = exact_value(exponent)
        except TooLargeError:
            return "a power is too large to evaluate"
        if value is not None and abs(value) > _MAX_EXPONENT:
            return "a power is too large to evaluate"
    return None


def _exponents(expression: str) -> list[str]:
    found = []
    for match in re.finditer(r"\^", expression):
        start = match.end()
        opening = expression[start : start + 1]
        if opening and opening in "{(":
            depth = 0
            for index in range(start, min(len(expression), start + 200)):
                depth += (expression[index] in "({") - (expression[index] in ")}")
                if depth == 0:
                    found.append(expression[start + 1 : index])
                    break
        else:
            found.append(expression[start : start + 1])
    return found


def _compare(gold: str, prediction: str, equal: Equal, depth: int) -> bool | None:
    if gold == prediction:
        return True
    if depth > 6:
        return False
    worded = _compare_words(gold, prediction)
    if worded is not None:
        return worded
    left, right = read(gold), read(prediction)
    if isinstance(left, Relation) or isinstance(right, Relation):
        return _compare_relations(left, right, equal, depth)
    if isinstance(left, Matrix) or isinstance(right, Matrix):
        return _compare_matrices(left, right, equal, depth)
    if isinstance(left, Collection) or isinstance(right, Collection):
        return _compare_collections(_listed(left, right), _listed(right, left), equal, depth)
    return _compare_leaves(left.text, right.text, equal)


def _listed(reading: Leaf | Collection, other: Leaf | Collection) -> Collection | Leaf:
    """A number such as `100,200` is two numbers where the other side is a list."""
    if isinstance(reading, Leaf) and "," in reading.text and isinstance(other, Collection):
        return Collection("", "", tuple(reading.text.split(",")))
    return reading


def _all(verdicts: Sequence[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True


# --- words -----------------------------------------------------------------------------------------------------------


def _plain_words(text: str) -> str:
    return _LETTERS.sub(" ", _WORD_GROUP.sub(r" \1 ", text).casefold()).strip()


def _is_wordy(text: str) -> bool:
    """Whether the text starts with words, so that it is prose and no quantity."""
    return text.startswith(r"\text{") and "=" not in text


def _choice(text: str) -> tuple[str, str] | None:
    r"""Letter and rest of a multiple-choice answer such as `(B)`, `\text{(B)}`, `B. 5`."""
    match = _CHOICE_LABEL.fullmatch(text)
    if match is None or match[2] and text[:1] not in "(\\" and "." not in text[:2] and ":" not in text[:2]:
        return None
    return match[1], _plain_words(match[2])


def _compare_words(gold: str, prediction: str) -> bool | None:
    """A verdict where one side is text; `None` where both are mathematics."""
    first, second = _choice(gold), _choice(prediction)
    if first is not None and second is not None and (first[0].isupper() or "(" in gold):
        bare = gold in (first[0],) and prediction in (second[0],)
        same = first[0] == second[0] if bare else first[0].upper() == second[0].upper()
        return same and (first[1] == second[1] or not first[1] or not second[1])
    if not _is_wordy(gold) and not _is_wordy(prediction):
        return None
    if read(gold).__class__ is not Leaf or read(prediction).__class__ is not Leaf:
        return None
    words, other = _plain_words(gold), _plain_words(prediction)
    if words and words == other:
        return True
    return False


# --- numbers, units, expressions -------------------------------------------------------------------------------------


def _compare_leaves(gold: str, prediction: str, equal: Equal) -> bool | None:
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
        return _compare_values(left, right, equal, left.unit.factor / right.unit.factor)
    verdict = _compare_values(left, right, equal, Fraction(1))
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
        if not 2 <= base <= 36 or len(match[1]) > 2_000:
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
        return _compare_values(left, right, equal, Fraction(1))
    if left.unit is not None and right.unit is not None:
        return False
    hundredth = Fraction(1, 100) if left.unit == PERCENT else Fraction(100)
    as_share = _compare_values(left, right, equal, hundredth)
    if as_share is not False:
        return as_share
    if left.unit is None:
        value = exact_value(left.value)
        if value is not None and abs(value) < 1:
            return False
    return _compare_values(left, right, equal, Fraction(1))


def _compare_values(left: Quantity, right: Quantity, equal: Equal, factor: Fraction) -> bool | None:
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


# --- collections -----------------------------------------------------------------------------------------------------


def _compare_collections(
    gold: Collection | Leaf, prediction: Collection | Leaf, equal: Equal, depth: int
) -> bool | None:
    if isinstance(gold, Leaf) or isinstance(prediction, Leaf):
        return _compare_lone(gold, prediction, equal, depth)
    if len(gold.items) > _MAX_ITEMS or len(prediction.items) > _MAX_ITEMS:
        return gold.is_ordered == prediction.is_ordered and sorted(gold.items) == sorted(prediction.items)
    if gold.opening == r"\cup" or prediction.opening == r"\cup":
        return gold.opening == prediction.opening and _match(gold.items, prediction.items, equal, depth)
    if gold.is_ordered and prediction.is_ordered:
        if gold.opening + gold.closing != prediction.opening + prediction.closing:
            return False
        return _in_order(gold.items, prediction.items, equal, depth)
    if gold.is_ordered or prediction.is_ordered:
        bare = prediction if gold.is_ordered else gold
        if bare.opening or "(" not in (gold.opening, prediction.opening):
            return False
        return _in_order(_values(gold.items), _values(prediction.items), equal, depth)
    first, second = _shared_names(gold.items), _shared_names(prediction.items)
    if r"\{" in (gold.opening, prediction.opening):
        first, second = tuple(dict.fromkeys(_values(first))), tuple(dict.fromkeys(_values(second)))
    return _match(first, second, equal, depth)


def _compare_lone(gold: Collection | Leaf, prediction: Collection | Leaf, equal: Equal, depth: int) -> bool | None:
    """A collection against a single value: only a set of one can be meant."""
    if isinstance(gold, Leaf) and isinstance(prediction, Leaf):
        return _compare_leaves(gold.text, prediction.text, equal)
    several, single = (gold, prediction) if isinstance(gold, Collection) else (prediction, gold)
    if not isinstance(several, Collection) or not isinstance(single, Leaf):
        return False
    if len(several.items) != 1 or several.is_ordered:
        return equal(r"\emptyset", r"\emptyset") if not several.items and single.text == r"\emptyset" else False
    pair = (several.items[0], single.text) if several is gold else (single.text, several.items[0])
    return _compare(*pair, equal, depth + 1)


def _values(items: Sequence[str]) -> tuple[str, ...]:
    """The right-hand sides where all items are assignments, the items themselves otherwise."""
    relations = [read(item) for item in items]
    if all(isinstance(relation, Relation) and relation.operators == ("=",) for relation in relations):
        return tuple(relation.sides[1] for relation in relations if isinstance(relation, Relation))
    return tuple(items)


def _shared_names(items: Sequence[str]) -> tuple[str, ...]:
    """`x=1,2` names x once for both values."""
    if len(items) < 2:
        return tuple(items)
    first = read(items[0])
    if not isinstance(first, Relation) or len(first.sides) != 2 or first.operators[0] not in ("=", r"\in"):
        return tuple(items)
    if any(isinstance(read(item), Relation) for item in items[1:]):
        relations = [read(item) for item in items]
        names = {relation.sides[0] for relation in relations if isinstance(relation, Relation)}
        return _values(items) if len(names) == 1 else tuple(items)
    return (first.sides[1], *items[1:])


def _in_order(gold: Sequence[str], prediction: Sequence[str], equal: Equal, depth: int) -> bool | None:
    if len(gold) != len(prediction):
        return False
    return _all([_compare(a, b, equal, depth + 1) for a, b in zip(gold, prediction, strict=True)])


def _match(gold: Sequence[str], prediction: Sequence[str], equal: Equal, depth: int) -> bool | None:
    """Whether the two hold the same items in any order."""
    if len(gold) != len(prediction):
        return False
    remaining = list(prediction)
    unknown = False
    for item in gold:
        verdicts: list[bool | None] = []
        for candidate in remaining:
            verdicts.append(_compare(item, candidate, equal, depth + 1))
            if verdicts[-1] is True:
                break
        if True in verdicts:
            del remaining[verdicts.index(True)]
        elif None in verdicts:
            unknown = True
        else:
            return False
    return None if unknown else True


def _compare_matrices(gold: object, prediction: object, equal: Equal, depth: int) -> bool | None:
    if not isinstance(gold, Matrix) or not isinstance(prediction, Matrix):
        return False
    if gold.is_determinant != prediction.is_determinant:
        return False
    if [len(row) for row in gold.rows] != [len(row) for row in prediction.rows]:
        return False
    pairs = zip(gold.rows, prediction.rows, strict=True)
    return _all([_in_order(left, right, equal, depth) for left, right in pairs])


# --- relations -------------------------------------------------------------------------------------------------------


def _compare_relations(gold: object, prediction: object, equal: Equal, depth: int) -> bool | None:
    if isinstance(gold, Relation) and isinstance(prediction, Relation):
        return _compare_two_relations(gold, prediction, equal, depth)
    relation, other = (gold, prediction) if isinstance(gold, Relation) else (prediction, gold)
    assert isinstance(relation, Relation)
    if isinstance(other, Collection) and (interval := _interval(relation)) is not None:
        pair = (interval[1], other) if relation is gold else (other, interval[1])
        return _compare_collections(*pair, equal, depth)
    value = _value_of(relation, named_only=relation is gold)
    if value is None:
        return False
    text = _text_of(other)
    if text is None:
        return False
    return _compare(value, text, equal, depth + 1) if relation is gold else _compare(text, value, equal, depth + 1)


def _text_of(reading: object) -> str | None:
    if isinstance(reading, Leaf):
        return reading.text
    if isinstance(reading, Collection):
        joint = r"\cup" if reading.opening == r"\cup" else ";"
        body = joint.join(reading.items)
        return body if joint != ";" else f"{reading.opening}{body}{reading.closing}"
    if isinstance(reading, Matrix):
        body = r"\\".join("&".join(row) for row in reading.rows)
        return rf"\begin{{pmatrix}}{body}\end{{pmatrix}}"
    return None


def _value_of(relation: Relation, *, named_only: bool) -> str | None:
    """What a chain of equations gives as its value; `None` when it gives none or contradicts itself."""
    sides = [strip_outer_brackets(side) for side in relation.sides]
    if relation.operators == (r"\in",):
        return sides[1] if is_name(sides[0]) else None
    if any(operator not in ("=", r"\approx") for operator in relation.operators):
        return None
    if relation.operators[-1] == r"\approx" and len(sides) > 1 and not is_name(sides[-2]):
        sides = sides[:-1]
    values = [value for side in sides if (value := exact_value(side)) is not None]
    if len(set(values)) > 1:
        return None
    if len(sides) == 2 and is_name(sides[1]) and not is_name(sides[0]):
        sides.reverse()
    if named_only and not is_name(sides[0]):
        return None
    return sides[-1]


def _interval(relation: Relation) -> tuple[str, Collection] | None:
    """Name and interval of `a < x <= b` and its kin."""
    sides, operators = relation.sides, relation.operators
    if any(operator not in _FLIPPED for operator in operators) or len(sides) > 3:
        return None
    if len(sides) == 2:
        if is_name(sides[1]) and not is_name(sides[0]):
            sides, operators = sides[::-1], (_FLIPPED[operators[0]],)
        if not is_name(sides[0]):
            return None
        if operators[0] in (">", r"\geq"):
            return sides[0], Collection("(" if operators[0] == ">" else "[", ")", (sides[1], r"\infty"))
        return sides[0], Collection("(", ")" if operators[0] == "<" else "]", (r"-\infty", sides[1]))
    if operators[0] in (">", r"\geq"):
        sides, operators = sides[::-1], tuple(_FLIPPED[operator] for operator in operators[::-1])
    if not is_name(sides[1]) or any(operator not in ("<", r"\leq") for operator in operators):
        return None
    opening, closing = "(" if operators[0] == "<" else "[", ")" if operators[1] == "<" else "]"
    return sides[1], Collection(opening, closing, (sides[0], sides[2]))


def _compare_two_relations(gold: Relation, prediction: Relation, equal: Equal, depth: int) -> bool | None:
    intervals = _interval(gold), _interval(prediction)
    if intervals[0] is not None and intervals[1] is not None:
        (name, left), (other, right) = intervals
        return name == other and _compare_collections(left, right, equal, depth)
    if set(gold.operators) == set(prediction.operators) == {"="}:
        left_value, right_value = (_value_of(relation, named_only=True) for relation in (gold, prediction))
        if left_value is not None and right_value is not None:
            names = [next(side for side in relation.sides if is_name(side)) for relation in (gold, prediction)]
            if names[0] == names[1]:
                return _compare(left_value, right_value, equal, depth + 1)
            if _is_constant(left_value) or _is_constant(right_value):
                return False
    if len(gold.sides) != 2 or len(prediction.sides) != 2:
        if gold.operators != prediction.operators:
            return False
        return _in_order(gold.sides, prediction.sides, equal, depth)
    if gold.operators[0] == prediction.operators[0]:
        return equal(_joined(gold), _joined(prediction))
    if _FLIPPED.get(gold.operators[0]) == prediction.operators[0]:
        return equal(_joined(gold), _joined(Relation(prediction.sides[::-1], gold.operators)))
    return False


def _is_constant(text: str) -> bool:
    return exact_value(text) is not None


def _joined(relation: Relation) -> str:
    return relation.operators[0].join(relation.sides)
