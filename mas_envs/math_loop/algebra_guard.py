"""What a symbolic system is spared: code, towers of powers, vast factorials, text beyond reason."""

import re

from mas_envs.math_loop.rationals import TooLargeError, exact_value

__all__ = ["refusal"]

_MAX_NESTING = 40
_MAX_CHARS = 4_000
_MAX_EXPONENT = 20_000
_MAX_EXPONENT_CHARS = 200
_CODE = re.compile(r"__|[\"`@#]|\\text\{(?:lambda|import|exit|eval|exec)")
_BIG_FACTORIAL = re.compile(r"\d{5}\s*\)?!|!\)*!")


def refusal(expression: str) -> str | None:
    """Why an expression is not worth handing to a symbolic system; `None` when it is fine."""
    if len(expression) > _MAX_CHARS:
        return "the expression is too long"
    if not any(char.isalnum() for char in expression):
        return "the expression names no value"
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
            for index in range(start, min(len(expression), start + _MAX_EXPONENT_CHARS)):
                depth += (expression[index] in "({") - (expression[index] in ")}")
                if depth == 0:
                    found.append(expression[start + 1 : index])
                    break
        else:
            found.append(expression[start : start + 1])
    return found
