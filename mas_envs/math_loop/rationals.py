"""Exact values of plain numeric answers, by our own small grammar and within fixed bounds."""

import math
import re
from fractions import Fraction

__all__ = ["MAX_BITS", "TooLargeError", "exact_value", "parse_number"]

MAX_BITS = 16_384
_MAX_CHARS = 6_000
_MAX_DIGITS = 4_000
_MAX_DEPTH = 120
_MAX_FACTORIAL = 1_500
_MAX_CYCLE_DIGITS = 60

_GROUPED = r"\d{1,3}(?:,\d{3})+(?![\d])"
_NUMBER = re.compile(
    rf"(?P<whole>{_GROUPED}|\d+)?(?:\.(?P<decimals>\d*))?"
    r"(?:(?:\\overline|\\dot)\{(?P<cycle>\d+)\}(?P<dots>\\ldots)?|(?P<open>\\ldots)|[eE](?P<exponent>[+-]?\d+)(?![A-Za-z\d]))?"
)
_PLAIN = re.compile(r"[+-]?\d{1,18}")
_TOKEN = re.compile(
    r"\\cdot|\\div|\\frac|\\binom|\\sqrt|\\lfloor|\\rfloor|\\lceil|\\rceil|\\pi|[-+/^!(){}\[\]| ]|(?P<number>[\d.])"
)
_CYCLE = re.compile(r"(\d{0,20}?)(\d{1,12}?)\2{2,}")


class TooLargeError(ValueError):
    """A number this package declines to work out: a tower of powers, a vast factorial."""


class _NotNumericError(ValueError):
    """The text is not in the grammar of plain numbers."""


def parse_number(text: str) -> Fraction | None:
    r"""The exact value of one literal number, `None` when the text is anything else.

    >>> parse_number("1,000.50"), parse_number(r"0.1\overline{6}"), parse_number("1/2")
    (Fraction(2001, 2), Fraction(1, 6), None)
    """
    sign, digits = 1, text
    if text[:1] in ("-", "+"):
        sign, digits = (-1 if text[0] == "-" else 1), text[1:]
    match = _NUMBER.fullmatch(digits)
    try:
        return None if match is None else sign * _literal(match)
    except (_NotNumericError, TooLargeError):
        return None


def exact_value(text: str) -> Fraction | None:
    r"""The exact value of a normalised numeric expression, `None` when it holds anything but numbers.

    Arithmetic, fractions, mixed numbers, integer powers, exact roots, factorials, binomials, floors; no names.

    >>> exact_value(r"2\frac{1}{3}"), exact_value("2^{10}-1"), exact_value(r"\sqrt{2}"), exact_value("x+1")
    (Fraction(7, 3), Fraction(1023, 1), None, None)

    Raises:
        TooLargeError: If the value, or a step towards it, needs more than `MAX_BITS` bits.
    """
    if _PLAIN.fullmatch(text):
        return Fraction(int(text))
    if not text or len(text) > _MAX_CHARS or not any(char.isdigit() for char in text):
        return None
    try:
        reader = _Reader(_tokens(text))
        value = reader.sum()
        return value if reader.at_end() else None
    except (_NotNumericError, ZeroDivisionError):
        return None


def _literal(match: re.Match[str]) -> Fraction:
    whole, decimals = (match["whole"] or "").replace(",", ""), match["decimals"]
    if not whole and not decimals and not match["cycle"]:
        raise _NotNumericError
    decimals = decimals or ""
    if len(whole) + len(decimals) > _MAX_DIGITS:
        raise TooLargeError
    cycle = match["cycle"] or ""
    if match["open"]:
        repeated = _CYCLE.fullmatch(decimals) if len(decimals) <= _MAX_CYCLE_DIGITS else None
        if repeated is None:
            raise _NotNumericError
        decimals, cycle = repeated[1], repeated[2]
    if cycle and (match["decimals"] is None or len(cycle) > _MAX_CYCLE_DIGITS):
        raise _NotNumericError
    value = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    if cycle:
        value += Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(decimals))
    if match["exponent"]:
        value *= _power(Fraction(10), _exponent(match["exponent"]))
    return value


def _exponent(text: str) -> Fraction:
    if len(text) > 6:
        raise TooLargeError
    return Fraction(int(text))


def _tokens(text: str) -> list[str | Fraction]:
    tokens: list[str | Fraction] = []
    index = 0
    while index < len(text):
        match = _TOKEN.match(text, index)
        if match is None:
            raise _NotNumericError
        if match["number"]:
            number = _NUMBER.match(text, index)
            assert number is not None
            tokens.append(_literal(number))
            index = number.end()
        else:
            tokens.append(match[0])
            index = match.end()
    return tokens


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooLargeError
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        root = _root(base, exponent.denominator)
        return _power(root, Fraction(exponent.numerator))
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and base != 0 and bits * abs(exponent.numerator) > MAX_BITS + bits:
        raise TooLargeError
    power = exponent.numerator if abs(base) != 1 else exponent.numerator % 2
    return Fraction(base**power) if base or power >= 0 else Fraction(1, 0)


def _root(value: Fraction, degree: int) -> Fraction:
    if (value < 0 and degree == 2) or degree > 64 or degree < 1:
        raise _NotNumericError
    sign = -1 if value < 0 else 1
    if sign < 0 and degree % 2 == 0:
        raise _NotNumericError
    parts = [_integer_root(part, degree) for part in (abs(value.numerator), value.denominator)]
    return sign * Fraction(parts[0], parts[1])


def _integer_root(value: int, degree: int) -> int:
    if degree == 2:
        root = math.isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
        root = low
    if root**degree != value:
        raise _NotNumericError
    return root


def _whole(value: Fraction) -> int:
    if value.denominator != 1 or value < 0:
        raise _NotNumericError
    if value > _MAX_FACTORIAL:
        raise TooLargeError
    return value.numerator


class _Reader:
    """Recursive descent over tokens; depth, digits and bits are bounded."""

    def __init__(self, tokens: list[str | Fraction]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def at_end(self) -> bool:
        return self._index == len(self._tokens)

    def _peek(self) -> str | Fraction | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _take(self, expected: str) -> None:
        if self._peek() != expected:
            raise _NotNumericError
        self._index += 1

    def sum(self) -> Fraction:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotNumericError
        value = self._product(self._sign())
        while self._peek() in ("+", "-"):
            value = _checked(value + self._product(self._sign()))
        self._depth -= 1
        return value

    def _sign(self) -> int:
        sign = 1
        while (token := self._peek()) in ("+", "-"):
            self._index += 1
            sign = -sign if token == "-" else sign
        return sign

    def _product(self, sign: int) -> Fraction:
        value = self._mixed()
        while (token := self._peek()) is not None:
            if token in ("\\cdot", "/", "\\div"):
                self._index += 1
                factor = self._sign() * self._power()
                value = _checked(value * factor if token == "\\cdot" else value / factor)
            elif token in _IMPLICIT_FACTORS or (isinstance(token, Fraction) and self._tokens[self._index - 1] in _ENDS):
                value = _checked(value * self._power())
            else:
                break
        return sign * value

    def _mixed(self) -> Fraction:
        r"""A factor; an integer before `\frac{1}{3}` or a spaced `1/3` is a mixed number."""
        first = self._peek()
        start = self._index
        value = self._power()
        if not isinstance(first, Fraction) or self._index != start + 1 or first.denominator != 1:
            return value
        rest = self._tokens[self._index : self._index + 7]
        if rest[:1] == [" "]:
            if (
                len(rest) < 4
                or not isinstance(rest[1], Fraction)
                or rest[2] != "/"
                or not isinstance(rest[3], Fraction)
            ):
                raise _NotNumericError
            self._index += 4
            return value + rest[1] / rest[3]
        if rest[:2] == ["\\frac", "{"] and len(rest) == 7 and rest[3:5] == ["}", "{"] and rest[6] == "}":
            top, bottom = rest[2], rest[5]
            if isinstance(top, Fraction) and isinstance(bottom, Fraction):
                self._index += 7
                return value + top / bottom
        return value

    def _power(self) -> Fraction:
        value = self._factorials(self._atom())
        if self._peek() != "^":
            return value
        self._index += 1
        if self._depth > _MAX_DEPTH:
            raise _NotNumericError
        self._depth += 1
        exponent = self._sign() * self._power()
        self._depth -= 1
        return _checked(_power(value, exponent))

    def _factorials(self, value: Fraction) -> Fraction:
        while self._peek() == "!":
            self._index += 1
            if self._peek() == "!":
                raise TooLargeError if value > 2 else _NotNumericError
            value = _checked(Fraction(math.factorial(_whole(value))))
        return value

    def _group(self, closing: str) -> Fraction:
        value = self.sum()
        self._take(closing)
        return value

    def _argument(self) -> Fraction:
        self._take("{")
        return self._group("}")

    def _atom(self) -> Fraction:
        token = self._peek()
        self._index += 1
        if isinstance(token, Fraction):
            return token
        if token in _CLOSING_OF:
            return self._group(_CLOSING_OF[token])
        if token == "\\frac":
            top = self._argument()
            return _checked(top / self._argument())
        if token == "\\binom":
            chosen_from = _whole(self._argument())
            return _checked(Fraction(math.comb(chosen_from, _whole(self._argument()))))
        if token == "\\sqrt":
            degree = Fraction(2)
            if self._peek() == "[":
                self._index += 1
                degree = self._group("]")
            return _root(self._argument(), _whole(degree))
        if token == "|":
            return abs(self._group("|"))
        if token == "\\lfloor":
            return Fraction(math.floor(self._group("\\rfloor")))
        if token == "\\lceil":
            return Fraction(math.ceil(self._group("\\rceil")))
        raise _NotNumericError


_IMPLICIT_FACTORS = ("(", "{", "\\frac", "\\sqrt", "\\binom", "\\lfloor", "\\lceil")
_ENDS = (")", "!", "]")
_CLOSING_OF: dict[str | Fraction | None, str] = {"(": ")", "{": "}", "[": "]"}
