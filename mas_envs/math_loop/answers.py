"""Whether two plain answers say the same, decided by kind: numbers exactly, units, lists, intervals, relations, text.

`compare` works on normalised text and leaves to its caller only what needs algebra: two expressions with names or
irrational constants. The same code runs in the trainer's process (which cannot do algebra and hears `None`) and in a
grading worker (which can).
"""

import re
from collections.abc import Sequence

from mas_envs.math_loop.latex_text import strip_outer_brackets
from mas_envs.math_loop.rationals import exact_value
from mas_envs.math_loop.structure import Collection, Leaf, Matrix, Relation, is_name, read
from mas_envs.math_loop.values import Equal, compare_values

__all__ = ["Equal", "compare"]

_MAX_ITEMS = 32
_FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"}
_WORD_GROUP = re.compile(r"\\text\{([^{}]*)\}")
_CHOICE_LABEL = re.compile(r"(?:\\text\{)?\(?([A-Za-z])(?:\)|[.:]|\Z)\}?\s*(?:\\text\{)?(.*)", re.DOTALL)
_WORD_OR_NUMBER = re.compile(r"[a-z]+|[0-9]+")


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
    return compare_values(left.text, right.text, equal)


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
    return " ".join(_WORD_OR_NUMBER.findall(_WORD_GROUP.sub(r" \1 ", text).casefold()))


def _is_wordy(text: str) -> bool:
    """Whether the text starts with words, so that it is prose and no quantity."""
    return text.startswith(r"\text{") and "=" not in text


def _choice(text: str) -> tuple[str, str] | None:
    r"""Letter and rest of a multiple-choice answer such as `(B)`, `\text{(B)}`, `B. 5`."""
    match = _CHOICE_LABEL.fullmatch(text)
    if match is None or (match[2] and text[:1] not in "(\\" and text[1:2] not in ".:"):
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
        return compare_values(gold.text, prediction.text, equal)
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
    sides = [side if "," in side else strip_outer_brackets(side) for side in relation.sides]
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
    first, second = _interval(gold), _interval(prediction)
    if first is not None and second is not None:
        return first[0] == second[0] and _compare_collections(first[1], second[1], equal, depth)
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
