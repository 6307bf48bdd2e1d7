"""What router, searcher and answerer are shown: the `full` style for instructed models, `short` for tiny ones."""

from collections.abc import Callable, Sequence
from typing import Literal

from mas_envs.actions import PROTOCOL_TAGS, defuse
from mas_envs.retrieval.protocol import Passage
from mas_envs.search.evidence import Round
from mas_envs.spaces import Message

__all__ = ["STYLES", "PromptStyle", "answerer_prompt", "router_prompt", "searcher_prompt", "solo_prompt"]

PromptStyle = Literal["full", "short"]
STYLES: tuple[PromptStyle, ...] = ("full", "short")

_TAGS = (*PROTOCOL_TAGS, "question", "verifier_0", "searcher_0", "answerer_0")
_NOTE_CHARS = 2_000

_TEAM = (
    "You are the {role} in a team of a verifier, a searcher and an answerer that answers a question with a search tool."
)
_ROUTER = (
    _TEAM.format(role="verifier")
    + " Decide whether what was found so far is enough to answer the question with certainty."
)
_ROUTER_END = (
    "This is round {number} of at most {limit}. Say what is known and what is missing, then end with "
    "<verify>yes</verify> if it is enough to answer, and with <verify>no</verify> if another search is needed."
)
_SEARCHER = _TEAM.format(role="searcher") + " Write the query that finds what is still missing."
_SEARCHER_END = (
    "This is round {number} of at most {limit}. First reason between <think> and </think> about what is missing; then "
    "write one query between <search> and </search>, and nothing after it."
)
_ANSWERER = _TEAM.format(role="answerer") + " Answer the question from what was found."
_ANSWERER_END = (
    "First reason between <think> and </think>; then write the answer alone, in as few words as possible, between "
    "<answer> and </answer>, without any explanation."
)
_SOLO = "You answer a question with a search tool."
_SOLO_END = (
    "This is round {number} of at most {limit}. First reason between <think> and </think>. Then either write one query "
    "between <search> and </search>, or, when what was found is enough or this is the last round, the answer alone, in "
    "as few words as possible, between <answer> and </answer>."
)


def router_prompt(
    question: str, rounds: Sequence[Round], *, style: PromptStyle, max_rounds: int, max_chars: int
) -> tuple[Message, ...]:
    """What the router is shown: the question and what was found."""
    if style == "short":
        return _short("Route", question, rounds, max_chars)
    return _full(_ROUTER, question, rounds, _counted(_ROUTER_END, rounds, max_rounds), max_chars)


def searcher_prompt(
    question: str, rounds: Sequence[Round], note: str, *, style: PromptStyle, max_rounds: int, max_chars: int
) -> tuple[Message, ...]:
    """What the searcher is shown: the question, what was found, and in the full style what the router just said."""
    if style == "short":
        return _short("Find", question, rounds, max_chars)
    end = _counted(_SEARCHER_END, rounds, max_rounds)
    if said := defuse(note.strip()[:_NOTE_CHARS], _TAGS):
        end = f"The verifier says:\n<verifier_0>\n{said}\n</verifier_0>\n\n{end}"
    return _full(_SEARCHER, question, rounds, end, max_chars)


def answerer_prompt(
    question: str, rounds: Sequence[Round], *, style: PromptStyle, max_chars: int
) -> tuple[Message, ...]:
    """What the answerer is shown: the question and what was found."""
    if style == "short":
        return _short("Answer", question, rounds, max_chars)
    return _full(_ANSWERER, question, rounds, _ANSWERER_END, max_chars)


def solo_prompt(
    question: str, rounds: Sequence[Round], *, style: PromptStyle, max_rounds: int, max_chars: int
) -> tuple[Message, ...]:
    """What a single agent is shown: the question and what was found."""
    if style == "short":
        return _short("Solve", question, rounds, max_chars)
    return _full(_SOLO, question, rounds, _counted(_SOLO_END, rounds, max_rounds), max_chars)


def _counted(template: str, rounds: Sequence[Round], limit: int) -> str:
    return template.format(number=min(len(rounds) + 1, limit), limit=limit)


def _full(opening: str, question: str, rounds: Sequence[Round], end: str, max_chars: int) -> tuple[Message, ...]:
    head = f"{opening}\n\n<question>\n{defuse(question, _TAGS)}\n</question>\n\n"
    history = _newest(rounds, _full_round, max_chars - len(head) - len(end) - 60)
    found = f"What was found so far, oldest first:\n{history}" if rounds else "Nothing was looked up yet."
    return _user(f"{head}{found}\n\n{end}")


def _short(verb: str, question: str, rounds: Sequence[Round], max_chars: int) -> tuple[Message, ...]:
    head = f"{verb} {defuse(question, _TAGS)}"
    history = _newest(rounds, _short_round, max_chars - len(head))
    return _user(f"{head}\n{history}" if rounds else head)


def _user(content: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": content},)


def _newest(rounds: Sequence[Round], render: Callable[[Round, int | None], str], room: int) -> str:
    """The rounds that fit into `room` characters, oldest first; of the newest at least the start of each passage."""
    shown: list[str] = []
    for number, each in enumerate(reversed(rounds)):
        text = render(each, None)
        if len(text) > room:
            if not shown:
                text = render(each, max(40, room // max(1, len(each.passages)) - 40))
                shown.append(text)
                number += 1
            if left_out := len(rounds) - number:
                shown.append(f"({left_out} earlier left out)")
            break
        shown.append(text)
        room -= len(text) + 1
    return "\n".join(reversed(shown))


def _full_round(each: Round, passage_chars: int | None) -> str:
    if each.query is None:
        return f"({each.fault})"
    lines = [
        f'[{number}] "{_safe(passage.title)}" {_cut(_safe(passage.text), passage_chars)}'
        for number, passage in enumerate(each.passages, start=1)
    ]
    found = "\n".join(lines) if lines else "(nothing was found)"
    return f"<search>{_safe(each.query)}</search>\n<information>\n{found}\n</information>"


def _short_round(each: Round, passage_chars: int | None) -> str:
    lines = [_cut(_safe(_line(passage)), passage_chars) for passage in each.passages]
    return f"<information>{_SHORT_GAP.join(lines) if lines else '?'}</information>"


_SHORT_GAP = ";"


def _line(passage: Passage) -> str:
    return f"{passage.title}: {passage.text}"


def _safe(text: str) -> str:
    return defuse(" ".join(text.split()), _TAGS)


def _cut(text: str, max_chars: int | None) -> str:
    return text if max_chars is None or len(text) <= max_chars else f"{text[:max_chars]}..."
