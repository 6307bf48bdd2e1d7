"""What a normalised answer is: a value, a collection, an interval, a relation or a matrix."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mas_envs.math_loop.latex_text import bracket_pairs, strip_outer_brackets
from mas_envs.math_loop.rationals import parse_number

__all__ = ["Collection", "Leaf", "Matrix", "Reading", "Relation", "is_name", "read"]

_OPERATORS = ("\\leq", "\\geq", "\\neq", "\\approx", "\\equiv", "\\implies", "\\sim", "\\in", "=", "<", ">")
_SEPARATORS = (",", ";")
_MATRIX = re.compile(
    r"[(\[]?\\begin\{(?P<kind>[pbvBV]?matrix|array|smallmatrix)\}(?:\{[clr| ]*\})?(?P<body>.*)"
    r"\\end\{(?P=kind)\}[)\]]?",
    re.DOTALL,
)
_BUILDER = re.compile(r"\\\{([A-Za-z])(?:\\in(?:\\mathbb\{R\}|R))?[:|](.+)\\\}")
_DOMAIN = re.compile(r"[,;]?[A-Za-z]\\in\\mathbb\{[A-Z]\}\Z")
_NAME = re.compile(
    r"(?:\\(?:text|overline|vec|angle|operatorname|mathbb|hat|triangle|widehat)(?:\{[^{}]*\})?|\\?[A-Za-z]+'*|)"
    r"(?:[A-Za-z]*)(?:_(?:[0-9A-Za-z]|\{[^{}]*\}))?(?:\([^()]*\))?"
)
_SIGN = re.compile(r"\\([pm])(?:(?<=p)m|(?<=m)p)(?![A-Za-z])\s*")
_MAX_NAME_CHARS = 60


@dataclass(frozen=True)
class Leaf:
    """A single value."""

    text: str
    """Normalised text."""


@dataclass(frozen=True)
class Collection:
    """Several values: a list, a set, a tuple, an interval or a union."""

    opening: str
    r"""`(`, `[`, `\\{`, empty for a bare list, `\\cup` for a union."""
    closing: str
    """The bracket at the other end; like `opening`."""
    items: tuple[str, ...]
    """Normalised texts, in order of writing."""

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the items carries meaning."""
        return self.opening in ("(", "[")


@dataclass(frozen=True)
class Relation:
    """An equation or an inequality, or a chain of them."""

    sides: tuple[str, ...]
    """Normalised texts, one more than there are operators."""
    operators: tuple[str, ...]
    """As normalised LaTeX."""


@dataclass(frozen=True)
class Matrix:
    """A matrix or a vector."""

    rows: tuple[tuple[str, ...], ...]
    """Normalised texts of the cells."""
    is_determinant: bool
    """Whether bars stand around it."""


Reading = Leaf | Collection | Relation | Matrix


def is_name(text: str) -> bool:
    r"""Whether the text only names something: `x`, `x_1`, `f(2)`, `AB`, `\text{Area}`; constants are no names."""
    if text in ("e", "i", r"\pi", r"\infty", "") or text.startswith((r"\sqrt", r"\frac", r"\sin", r"\cos", r"\ln")):
        return False
    if len(text) > 2 and text[0] == "(" and text[-1] == ")" and "," in text:
        return all(is_name(part) for part in text[1:-1].split(","))
    return len(text) <= _MAX_NAME_CHARS and _NAME.fullmatch(text) is not None


def read(text: str) -> Reading:
    r"""The structure of a normalised answer, outermost first.

    >>> read(r"(0,1]"), read("x=3")
    (Collection(opening='(', closing=']', items=('0', '1')), Relation(sides=('x', '3'), operators=('=',)))
    """
    stripped = strip_outer_brackets(text, opening="{")
    matrix = _MATRIX.fullmatch(stripped)
    if matrix is not None and matrix["body"].count(r"\begin") == 0:
        return _read_matrix(matrix)
    if parse_number(stripped) is not None:
        return Leaf(stripped)
    builder = _BUILDER.fullmatch(stripped)
    if builder is not None:
        return read(_DOMAIN.sub("", builder[2]))
    inner = _inside_brackets(stripped)
    if inner is not None:
        return _read_brackets(stripped, inner)
    return _read_tokens(stripped)


def _read_tokens(stripped: str) -> Reading:
    tokens = tuple(_top_level(stripped, (*_OPERATORS, *_SEPARATORS, r"\cup", r"\pm", r"\mp")))
    kinds = {token for _, token in tokens}
    if kinds.intersection(_SEPARATORS):
        items = _split(stripped, tokens, _SEPARATORS)
        return Collection("", "", tuple(part for item in items for part in _signs(item)))
    if kinds.intersection(_OPERATORS):
        operators = tuple(token for _, token in tokens if token in _OPERATORS)
        if r"\pm" in kinds and operators == ("=",):
            left, right = _split(stripped, tokens, _OPERATORS)
            return Collection("", "", tuple(f"{left}={part}" for part in _signs(right)))
        return Relation(_split(stripped, tokens, _OPERATORS), operators)
    if r"\cup" in kinds:
        return Collection(r"\cup", r"\cup", _split(stripped, tokens, (r"\cup",)))
    signs = _signs(stripped)
    if len(signs) > 1:
        return Collection("", "", signs)
    if stripped == r"\mathbb{R}":
        return Collection("(", ")", (r"-\infty", r"\infty"))
    return Leaf(stripped)


def _signs(text: str) -> tuple[str, ...]:
    """Both readings of a plus-minus sign."""
    if _SIGN.search(text) is None:
        return (text,)
    upper = _SIGN.sub(lambda sign: "+" if sign[1] == "p" else "-", text)
    lower = _SIGN.sub(lambda sign: "-" if sign[1] == "p" else "+", text)
    return upper.removeprefix("+"), lower


def _inside_brackets(text: str) -> str | None:
    """The text inside brackets that hold all of it."""
    if len(text) < 3:
        return None
    if text.startswith(r"\{"):
        return text[2:-2] if text.endswith(r"\}") and bracket_pairs(text).get(1) == len(text) - 1 else None
    if text[0] in "([" and text[-1] in ")]" and bracket_pairs(text).get(0) == len(text) - 1:
        return text[1:-1]
    return None


def _read_brackets(text: str, inner: str) -> Reading:
    opening, closing = (r"\{", r"\}") if text[0] == "\\" else (text[0], text[-1])
    tokens = tuple(_top_level(inner, _SEPARATORS))
    if not tokens:
        if opening + closing == "()":
            return read(strip_outer_brackets(inner, opening="("))
        if opening == r"\{" or opening + closing == "[]":
            return Collection(opening, closing, _signs(inner))
        return Leaf(text)
    items = tuple(part for item in _split(inner, tokens, _SEPARATORS) for part in _signs(item))
    return Collection(opening, closing, items)


def _read_matrix(match: re.Match[str]) -> Matrix:
    body = match["body"].strip().removesuffix("\\\\").strip()
    rows = tuple(tuple(cell.strip() for cell in row.split("&")) for row in body.split("\\\\"))
    return Matrix(rows, match["kind"][0] in "vV")


def _top_level(text: str, wanted: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Position and token of each wanted token outside all brackets."""
    depth, index = 0, 0
    while index < len(text):
        char = text[index]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            token = next((token for token in wanted if text.startswith(token, index)), None)
            if token is not None and not (
                token[0] == "\\" and text[index + len(token) : index + len(token) + 1].isalpha()
            ):
                yield index, token
                index += len(token)
                continue
        if char == "\\" and text[index + 1 : index + 2].isalpha():
            index += 1
            while text[index : index + 1].isalpha():
                index += 1
            continue
        index += 1


def _split(text: str, tokens: tuple[tuple[int, str], ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    parts, start = [], 0
    for index, token in tokens:
        if token in wanted:
            parts.append(text[start:index].strip())
            start = index + len(token)
    parts.append(text[start:].strip())
    return tuple(parts) if wanted != _SEPARATORS else tuple(part for part in parts if part)
