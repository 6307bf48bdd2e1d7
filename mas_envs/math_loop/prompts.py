"""What solver and verifier are shown: the `full` style for instructed models, the `short` one for tiny models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mas_envs.actions import PROTOCOL_TAGS, defuse
from mas_envs.spaces import Message

__all__ = ["STYLES", "PromptStyle", "Said", "solver_prompt", "verifier_prompt"]

PromptStyle = Literal["full", "short"]
STYLES: tuple[PromptStyle, ...] = ("full", "short")

_TAGS = (*PROTOCOL_TAGS, "problem", "solver_0", "verifier_0")

_SOLVER = (
    "You are the solver in a team of a solver and a verifier. Work out the problem below step by step, and end with "
    "the final answer alone in \\boxed{{}}.\n\n<problem>\n{question}\n</problem>"
)
_SOLVER_AGAIN = (
    "\n\nWhat the team has said so far, oldest first:\n{history}\n\nThe verifier did not approve. Find what is wrong, "
    "then write the whole solution anew and end with the final answer alone in \\boxed{{}}."
)
_VERIFIER = (
    "You are the verifier in a team of a solver and a verifier. Check the solver's latest solution of the problem "
    "below, step by step; do not trust it.\n\n<problem>\n{question}\n</problem>\n\n"
    "What the team has said so far, oldest first:\n{history}\n\n"
    "End with <verify>approve</verify> if the latest final answer is right, and with <verify>reject</verify> if it is "
    "not."
)


@dataclass(frozen=True)
class Said:
    """One earlier output, as later prompts need it."""

    agent_id: str
    """Who said it."""
    text: str
    """The whole completion."""
    content: str | None
    """What was parsed from it: the boxed answer, or the verdict; None when nothing was."""


def solver_prompt(question: str, said: Sequence[Said], style: PromptStyle) -> tuple[Message, ...]:
    """What the solver is shown: the problem, and everything said so far."""
    if style == "short":
        return _user(f"Solve {defuse(question, _TAGS)}{_short_history(said)}")
    text = _SOLVER.format(question=defuse(question, _TAGS))
    if said:
        text += _SOLVER_AGAIN.format(history=_full_history(said))
    return _user(text)


def verifier_prompt(question: str, said: Sequence[Said], style: PromptStyle) -> tuple[Message, ...]:
    """What the verifier is shown: the problem, and everything said so far."""
    if style == "short":
        return _user(f"Check {defuse(question, _TAGS)}{_short_history(said)}")
    return _user(_VERIFIER.format(question=defuse(question, _TAGS), history=_full_history(said)))


def _user(content: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": content},)


def _full_history(said: Sequence[Said]) -> str:
    if not said:
        return "(nothing yet)"
    return "\n".join(f"<{turn.agent_id}>\n{defuse(turn.text, _TAGS)}\n</{turn.agent_id}>" for turn in said)


def _short_history(said: Sequence[Said]) -> str:
    """Only what was parsed of each turn, `?` where nothing was."""
    return "".join(
        f"\n<{turn.agent_id}>{'?' if turn.content is None else defuse(turn.content, _TAGS)}</{turn.agent_id}>"
        for turn in said
    )
