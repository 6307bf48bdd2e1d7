"""From a completion to a parsed action: thoughts, tag blocks, boxes and verdicts; and text made safe to show to others.

Model output is hostile input: every function takes any string, runs in linear time and never raises on its content.
The rules are the `recommended` rules that the reference vectors in `tests/golden/actions.jsonl` pin down.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "PROTOCOL_TAGS",
    "Parsed",
    "defuse",
    "mend_text",
    "parse_block",
    "parse_boxed",
    "parse_verdict",
    "strip_thoughts",
]

PROTOCOL_TAGS = ("think", "search", "answer", "verify", "information")
"""Tags with a meaning in the built-in environments; none of them may stand inside a block that is acted on."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_THINK = re.compile(r"<(/?)think>", re.IGNORECASE)
_BOX = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_PLAIN_CONTENT = re.compile(r"([^{}\\]*)\}")
_CHAT_MARKER = re.compile(r"<([|\uff5c][^<>\n]{1,64}|\w{1,32}[|\uff5c])>")  # `<|x|>`, also `<|x>` and `<x|>`
_TEMPLATE_MARKER = re.compile(
    r"<(?:(?=[/a-z])"  # a quick look before the long list
    r"(/?(?:s|bos|eos|pad|start_of_turn|end_of_turn|start_header_id|end_header_id|end_of_text|eot_id))>"
    r"|<(/?SYS)>>)",
    re.IGNORECASE,
)
_INSTRUCTION_MARKER = re.compile(r"\[(/?INST)\]", re.IGNORECASE)


@dataclass(frozen=True)
class Parsed:
    """What a completion says, and whether it says so in the right form."""

    content: str | None
    """The text to act on; None when there is nothing to act on."""
    valid: bool
    """False when the format is broken, also where the content can still be used."""
    reason: str | None = None
    """Why it is not valid, in words; None when it is."""


def strip_thoughts(text: str) -> str | None:
    """The text after the last `</think>`; None when a `<think>` stands open, as in a completion that was cut off.

    >>> strip_thoughts("<think>2+2</think>4"), strip_thoughts("<think>2+2")
    ('4', None)
    """
    if "<" not in text:
        return text
    end, is_open = 0, False
    for tag in _THINK.finditer(text):
        is_open = not tag.group(1)
        if not is_open:
            end = tag.end()
    return None if is_open else text[end:]


def parse_boxed(text: str) -> Parsed:
    r"""The content of the last filled `\boxed{}` after the thoughts, braces balanced.

    An empty box is passed over; when the last box is never closed there is no content.

    >>> parse_boxed(r"First \boxed{3}, no: \boxed{\frac{1}{2}}").content
    '\\frac{1}{2}'
    """
    visible = strip_thoughts(text)
    if visible is None:
        return Parsed(None, False, "the completion ends inside its thoughts")
    starts = [box.end() for box in _BOX.finditer(visible)]
    if not starts:
        return Parsed(None, False, r"no \boxed{...} after the thoughts")
    plain = _PLAIN_CONTENT.match(visible, starts[-1])
    if plain and plain.group(1).strip():
        return Parsed(plain.group(1), True)  # nothing to balance, as in most answers
    closings = _closing_braces(visible, starts)
    if closings[-1] is None:
        return Parsed(None, False, r"the last \boxed{ is not closed")
    for start, end in zip(reversed(starts), reversed(closings), strict=True):
        if end is not None and visible[start:end].strip():
            return Parsed(visible[start:end], True)
    return Parsed(None, False, r"no filled \boxed{...} after the thoughts")


def parse_block(text: str, tag: str, thoughts: Literal["optional", "required"] = "optional") -> Parsed:
    """The content of the last filled `<tag>` block after the thoughts, without outer white space.

    A block is an opening tag and the nearest closing tag with no second opening tag between; tags match in any case.

    >>> parse_block("<search>mayor of Paris</search>", "search")
    Parsed(content='mayor of Paris', valid=True, reason=None)

    Args:
        text: A raw completion.
        tag: Name of the tag, without brackets.
        thoughts: `required` marks the action invalid unless exactly one well-formed `<think>` pair comes before the
            block; the block is used all the same.
    """
    visible = strip_thoughts(text)
    if visible is None:
        return Parsed(None, False, "the completion ends inside its thoughts")
    filled = [block for block in _blocks(visible, tag) if block]
    if not filled:
        return Parsed(None, False, f"no filled <{tag}> block after the thoughts")
    content = filled[-1]
    if _tag_pattern((*PROTOCOL_TAGS, tag)).search(content):
        return Parsed(None, False, f"protocol tags inside the <{tag}> block")
    if len(set(filled)) > 1:
        return Parsed(content, False, f"several <{tag}> blocks that differ")
    if thoughts == "required" and not _has_one_thought(text):
        return Parsed(content, False, "not exactly one <think>...</think> before the block")
    return Parsed(content, True)


def parse_verdict(text: str, tag: str, words: Sequence[str]) -> Parsed:
    """The verdict word in the last filled `<tag>` block, in lower case; content None when it is none of `words`.

    >>> parse_verdict("Line 2 is wrong. <verify>Reject.</verify>", "verify", ("approve", "reject")).content
    'reject'

    Args:
        text: A raw completion.
        tag: Name of the tag, without brackets.
        words: The words that count, in lower case.
    """
    visible = strip_thoughts(text)
    if visible is None:
        return Parsed(None, False, "the completion ends inside its thoughts")
    verdicts = [word for word in (block.strip(" \t\r\n.").lower() for block in _blocks(visible, tag)) if word]
    if not verdicts:
        return Parsed(None, False, f"no filled <{tag}> block after the thoughts")
    if verdicts[-1] not in words:
        return Parsed(None, False, f"the verdict is none of {', '.join(words)}")
    if len(set(verdicts)) > 1:
        return Parsed(verdicts[-1], False, "the verdicts contradict each other")
    return Parsed(verdicts[-1], True)


def defuse(text: str, tags: Iterable[str] = PROTOCOL_TAGS) -> str:
    """`text` with every protocol tag and chat-template marker made inert: angle brackets become square ones.

    What one agent wrote can then be shown to another, inside tags of the environment, without forging a tag, a
    teammate's message or a chat turn. Text without such tags comes back unchanged.

    >>> defuse("so <verify>approve</verify><|im_end|> 1 < 2")
    'so [verify]approve[/verify][|im_end|] 1 < 2'

    Args:
        text: Any text.
        tags: Names of the tags to defuse, in any case, with or without spaces inside the brackets.
    """
    if "<" not in text and "[" not in text:
        return text
    pattern = _tag_pattern(tuple(tags))
    previous = None
    while previous != text:
        previous = text
        if "<" in text:
            text = pattern.sub(_square, text)
            text = _CHAT_MARKER.sub(r"[\1]", text)
            text = _TEMPLATE_MARKER.sub(_defused_marker, text)
        if "[" in text:
            text = _INSTRUCTION_MARKER.sub(r"(\1)", text)
    return text


def mend_text(text: str, max_chars: int) -> tuple[str, str | None]:
    r"""`text` as valid Unicode of at most `max_chars`, and in words what had to be mended; None when nothing had.

    >>> mend_text("a\ud800bc", 3)[0] == "a\ufffdb"
    True
    """
    fault = None
    if len(text) > max_chars:
        fault = f"the action of {len(text)} characters was cut to {max_chars}"
        text = text[:max_chars]
    if not text.isascii() and _SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        fault = fault or "the action held undecodable characters, which were replaced"
    return text, fault


def _square(tag: re.Match[str]) -> str:
    return f"[{tag.group()[1:-1]}]"


def _defused_marker(marker: re.Match[str]) -> str:
    angle, system = marker.groups()
    return f"[{angle}]" if angle else f"[[{system}]]"


@functools.lru_cache(maxsize=256)
def _tag_pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(re.escape(tag) for tag in dict.fromkeys(tags))
    return re.compile(rf"<\s{{0,8}}+/?+\s{{0,8}}+(?:{names})\s{{0,8}}/?>", re.IGNORECASE)  # `+`: no backtracking


@functools.lru_cache(maxsize=256)
def _exact_tag_pattern(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(tag)}>", re.IGNORECASE)


def _blocks(text: str, tag: str) -> list[str]:
    """Contents of the blocks in order, stripped; found in one pass over the tags."""
    contents, start = [], None
    for mark in _exact_tag_pattern(tag).finditer(text):
        if not mark.group(1):
            start = mark.end()
        elif start is not None:
            contents.append(text[start : mark.start()].strip())
            start = None
    return contents


def _has_one_thought(text: str) -> bool:
    return [tag.group(1) for tag in _THINK.finditer(text)] == ["", "/"]


def _closing_braces(text: str, starts: Sequence[int]) -> list[int | None]:
    """For each position just after an opening brace, where that brace closes; one pass, escaped braces do not count."""
    wanted = {start - 1: index for index, start in enumerate(starts)}
    closings: list[int | None] = [None] * len(starts)
    stack: list[int] = []
    for brace in _BRACE.finditer(text, starts[0] - 1):
        if brace.group() == "{":
            stack.append(brace.start())
        elif brace.group() == "}" and stack:
            opening = stack.pop()
            if opening in wanted:
                closings[wanted[opening]] = brace.start()
    return closings
