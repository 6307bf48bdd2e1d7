"""One spelling for the many ways to write the same plain answer; linear in the length of the text."""

import re
from functools import lru_cache

__all__ = ["bracket_pairs", "normalise", "strip_outer_brackets"]

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "π": r"\pi ",  # noqa: RUF001
        "∞": r"\infty ", "≤": r"\leq ", "≥": r"\geq ", "≠": r"\neq ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",  # noqa: RUF001
        "∅": r"\emptyset ", "°": r"^\circ ", "±": r"\pm ", "∓": r"\mp ", "≈": r"\approx ", "ℝ": r"\mathbb{R}",  # noqa: RUF001
        "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
        "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "θ": r"\theta ", "λ": r"\lambda ", "φ": r"\phi ",  # noqa: RUF001
        "ω": r"\omega ", "…": r"\ldots ", "“": "", "”": "", '"': "", "\u00a0": " ", "\u2009": r"\,", "\u202f": r"\,",
        "\n": " ", "\t": " ", "\r": " ", "⁄": "/", "∕": "/",  # noqa: RUF001
    }
)  # fmt: skip
_FUNCTIONS = (
    "arcsin arccos arctan sinh cosh tanh sin cos tan cot sec csc log ln exp max min gcd lcm det deg dim lim mod".split()
)
_GREEK = "alpha beta gamma delta theta lambda sigma omega infty".split()
_SHORT_WORDS = {"yes", "no", "odd", "or", "and", "dne", "none", "per", "even", "the"}
_SYNONYMS = {
    "infinitely many": r"\infty",
    "infinitely many solutions": r"\infty",
    "infinity": r"\infty",
    "inf": r"\infty",
    "no solution": r"\emptyset",
    "no solutions": r"\emptyset",
    "no real solutions": r"\emptyset",
    "no real solution": r"\emptyset",
    "empty set": r"\emptyset",
    "the empty set": r"\emptyset",
    "all real numbers": r"\mathbb{R}",
    "all reals": r"\mathbb{R}",
    "does not exist": r"\text{DNE}",
    "percent": "%",
    "per cent": "%",
    "percentage": "%",
    "or": ";",
    "and": ";",
    "pi": r"\pi ",
}
_GROUPED_DIGITS = re.compile(r"(?<![\d.\\])(\d{1,3})((?:(?:\{,\}|\\[,;: !]|~| )\s*\d{3})+)(?![\d/])")
_COMMA_SPACE = re.compile(r"(?<=\d),\s+(?=\d{3}(?!\d))")
_ROOT_SIGN = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z])")
_SUPERSCRIPT_RUN = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_DELIMITER = re.compile(r"(?<!\\)(?:\\[()\[\]]|\$+)")
_DROPPED = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|nolimits|rm|bf|it)(?![A-Za-z])\s*\.?(?=[^\d]|$)|\\!"
)
_WRAPPER = re.compile(
    r"\\(?:mathrm|mathbf|mathit|mathsf|mathtt|textbf|textit|textrm|textsf|texttt|textnormal|mbox|hbox|operatorname\*?"
    r"|bm|boldsymbol|emph|underline)\s*(?=\{)"
)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)")
_SPACING = re.compile(r"(?<!\\)\\(?:[,;: ]|quad(?![A-Za-z])|qquad(?![A-Za-z])|hspace\{[^{}]*\})|~")
_ALIASES = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "le": r"\leq", "ge": r"\geq", "leqslant": r"\leq",
    "geqslant": r"\geq", "ne": r"\neq", "times": r"\cdot ", "cdot": r"\cdot ", "ast": r"\cdot ",
    "varnothing": r"\emptyset",
    "degree": r"^\circ", "lbrace": r"\{", "rbrace": r"\}", "lvert": "|", "rvert": "|", "vert": "|", "lt": "<",
    "gt": ">",
    "dots": r"\ldots", "cdots": r"\ldots", "colon": ":", "mid": ":", "lbrack": "[", "rbrack": "]", "bar": r"\overline",
    "land": ";", "lor": ";", "Reals": r"\mathbb{R}", "R": r"\mathbb{R}", "dbinom": r"\binom", "tbinom": r"\binom",
    "arrow": "", "bmod": r"\pmod", "thinspace": " ", "imath": "i", "varphi": r"\phi", "setminus": r"\setminus",
    "backslash": r"\setminus", "implies": r"\implies",
}  # fmt: skip
_ALIAS = re.compile(r"\\(" + "|".join(sorted(_ALIASES, key=len, reverse=True)) + r")(?![A-Za-z])\s*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_NUMBER_IN_TEXT = re.compile(r"([-+]?\d[\d.,/]*)(.*)", re.DOTALL)
_WORDS = re.compile(
    r"\\(?:text|begin|end|mathbb|mathcal|overline|vec|hat)\s*\{[^{}]*\}|\\[A-Za-z]+"
    r"|[A-Za-z]{2,}(?:[ ]+[A-Za-z]{2,})*(?![A-Za-z(]{0,20}\()|[A-Za-z]{2,}"
)
_SPACE = re.compile(r"\s+")
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])|(?<=[0-9]) (?=[A-Za-z])|(?<=[A-Za-z]) (?=[0-9])")
_FRACTIONS = (
    (re.compile(r"\\frac\s*([0-9A-Za-z])\s*([0-9A-Za-z])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*([0-9A-Za-z])\s*(?=\{)"), r"\\frac{\1}"),
    (re.compile(r"\\frac\s*(\\[A-Za-z]+)\s*([0-9A-Za-z])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\{[^{}]*\})\s*([0-9A-Za-z])"), r"\\frac\1{\2}"),
    (re.compile(r"\\sqrt\s*([0-9A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"\{([^{}]*)\\choose(?![A-Za-z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\A([^{}]*)\\over(?![A-Za-z])([^{}]*)\Z"), r"\\frac{\1}{\2}"),
    (re.compile(r"\A([^{}]*)\\choose(?![A-Za-z])([^{}]*)\Z"), r"\\binom{\1}{\2}"),
)
_TIDY = (
    (re.compile(r"\^\{\\circ\}|\^\\circ"), r"^\\circ"),
    (re.compile(r"([\^_])\{([0-9A-Za-z])\}"), r"\1\2"),
    (re.compile(r"\^(-?\d{2,})(?![\d.])"), r"^{\1}"),
    (re.compile(r"\\\{\s*\\\}"), r"\\emptyset"),
)
_SENTENCE = re.compile(r"\A(?:\\text\{)?\s*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*[:=]?\s*\}?", re.IGNORECASE)
_OPENING, _CLOSING = "([{", ")]}"


def bracket_pairs(text: str) -> dict[int, int]:
    r"""Index of the closing bracket for each opening one; `(`, `[` and `{` may close each other, as in `[0,1)`."""
    pairs: dict[int, int] = {}
    stack: list[int] = []
    for index, char in enumerate(text):
        if char in _OPENING:
            stack.append(index)
        elif char in _CLOSING and stack:
            pairs[stack.pop()] = index
    return pairs


def strip_outer_brackets(text: str, *, opening: str = "({") -> str:
    """The text without brackets that hold all of it, however deep; brackets around a list stay to the reader."""
    pairs = bracket_pairs(text)
    first, last = 0, len(text) - 1
    while first < last and text[first] in opening and pairs.get(first) == last:
        if _CLOSING[_OPENING.index(text[first])] != text[last]:
            break
        first, last = first + 1, last - 1
    return text[first : last + 1]


@lru_cache(maxsize=1024)
def normalise(text: str) -> str:
    r"""The text in one spelling: LaTeX commands, no layout, words as `\text{...}`.

    Nothing is evaluated. Equal results mean equal answers; different results mean nothing yet.

    >>> normalise(r"$\dfrac 12$"), normalise("5 feet"), normalise(r"1{,}000")
    ('\\frac{1}{2}', '5\\text{feet}', '1000')
    """
    text = text.strip().strip("'").strip()
    if not text.isascii():
        text = _ROOT_SIGN.sub(r"\\sqrt{\1}", text)
        text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
        text = text.replace("√", r"\sqrt").translate(_UNICODE)
    else:
        text = text.translate(_UNICODE)
    if "$" in text:
        text = text.replace(r"\$", r"\dollar ")
        if text.startswith("$") and text.count("$") == 1:
            text = r"\dollar " + text[1:]
    text = _GROUPED_DIGITS.sub(lambda match: match[1] + re.sub(r"\D", "", match[2]), text)
    text = _COMMA_SPACE.sub(";", text).replace("{,}", ",")
    if "\\" in text or "$" in text:
        text = _plain_commands(text)
    text = text.replace("**", "^").replace("*", r"\cdot ").replace("<=", r"\leq ").replace(">=", r"\geq ")
    text = text.replace("!=", r"\neq ").replace(r"\%", "%")
    text = _SENTENCE.sub("", text, count=1)
    text = _WORDS.sub(_word, text)
    text = _SPACE.sub(" ", text).strip()
    if "\\" in text:
        for pattern, replacement in _FRACTIONS:
            text = pattern.sub(replacement, text)
        text = _parentheses_to_braces(text)
    elif "^(" in text:
        text = _parentheses_to_braces(text)
    text = _LOOSE_SPACE.sub("", text)
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    text = text.rstrip(".,;: ")
    return strip_outer_brackets(text, opening="{")


def _plain_commands(text: str) -> str:
    text = _DELIMITER.sub(" ", text)
    text = _DROPPED.sub("", text)
    text = _BOX.sub("", text)
    text = _WRAPPER.sub(r"\\text", text)
    text = _SPACING.sub(" ", text)
    text = _ALIAS.sub(lambda match: _ALIASES[match[1]] + (" " if _ALIASES[match[1]][-1:].isalpha() else ""), text)
    return _TEXT.sub(_text_group, text)


def _text_group(match: re.Match[str]) -> str:
    content = " ".join(match[1].split())
    if not any(char.isalpha() for char in content):
        return content
    synonym = _SYNONYMS.get(content.casefold().strip("., "))
    if synonym is not None:
        return synonym
    number = _NUMBER_IN_TEXT.fullmatch(content)
    if number is not None:
        return f"{number[1]}\\text{{{number[2].strip()}}}" if number[2].strip() else number[1]
    return f"\\text{{{content}}}"


def _word(match: re.Match[str]) -> str:
    run = match[0]
    if run.startswith("\\"):
        return run
    folded = run.casefold()
    if folded in _SYNONYMS:
        return _SYNONYMS[folded]
    if run in _FUNCTIONS or run in _GREEK or run == "sqrt":
        return "\\" + run + ("" if run == "sqrt" else " ")
    words = folded.split()
    if len(words) > 1 or len(run) > 3 or folded in _SHORT_WORDS:
        return f"\\text{{{run}}}"
    return run


def _parentheses_to_braces(text: str) -> str:
    r"""`2^(10)` and `\sqrt(2)` with braces, so that both sides are LaTeX."""
    if "^(" not in text and r"\sqrt(" not in text:
        return text
    pairs = bracket_pairs(text)
    chars = list(text)
    for opening, closing in pairs.items():
        after_root = text.endswith(r"\sqrt", 0, opening)
        if text[opening] == "(" and text[closing] == ")" and (after_root or text.endswith("^", 0, opening)):
            chars[opening], chars[closing] = "{", "}"
    return "".join(chars)
