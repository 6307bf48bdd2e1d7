"""What solver, verifier and refiner are shown: the `full` style for instructed models, `short` for tiny ones."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mas_envs.actions import PROTOCOL_TAGS, defuse
from mas_envs.spaces import Message

__all__ = ["STYLES", "PromptStyle", "Said", "prompt_of", "refiner_prompt", "solver_prompt", "verifier_prompt"]

PromptStyle = Literal["full", "short"]
STYLES: tuple[PromptStyle, ...] = ("full", "short")

_TAGS = (*PROTOCOL_TAGS, "problem", "solver_0", "verifier_0", "refiner_0")

_SOLVER = (
    "You are the solver in a team of a solver and a verifier. Work out the problem below step by step, and end with "
    "the final answer alone in \\boxed{{}}.\n\n<problem>\n{question}\n</problem>"
)
_HISTORY = "\n\nWhat the team has said so far, oldest first:\n"
_SOLVER_AGAIN = (
    "\n\nThe verifier did not approve. Find what is wrong, then write the whole solution anew and end with the final "
    "answer alone in \\boxed{}."
)
_REFINER = (
    "You are the refiner in a team of a solver, a verifier and a refiner. The verifier did not approve the solution of "
    "the problem below. Find what is wrong, then write the whole solution anew and end with the final answer alone in "
    "\\boxed{{}}.\n\n<problem>\n{question}\n</problem>"
)
_VERIFIER = (
    "You are the verifier in a team of a solver and a verifier. Check the solver's latest solution of the problem "
    "below, step by step; do not trust it.\n\n<problem>\n{question}\n</problem>"
)
_VERIFIER_END = (
    "\n\nEnd with <verify>approve</verify> if the latest final answer is right, and with <verify>reject</verify> if it "
    "is not."
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

    @functools.cached_property
    def full(self) -> str:
        """The whole completion between the speaker's tags, made safe to show."""
        return f"<{self.agent_id}>\n{defuse(self.text, _TAGS)}\n</{self.agent_id}>"

    @functools.cached_property
    def short(self) -> str:
        """Only what was parsed, between the speaker's tags, made safe to show; `?` where nothing was."""
        shown = "?" if self.content is None else defuse(self.content, _TAGS)
        return f"<{self.agent_id}>{shown}</{self.agent_id}>"


def solver_prompt(question: str, said: Sequence[Said], style: PromptStyle) -> tuple[Message, ...]:
    """What the solver is shown: the problem, and everything said so far."""
    if style == "short":
        return _user(_filled("Solve {question}", question) + _short_history(said))
    opening = _filled(_SOLVER, question)
    return _user(f"{opening}{_HISTORY}{_full_history(said)}{_SOLVER_AGAIN}" if said else opening)


def verifier_prompt(question: str, said: Sequence[Said], style: PromptStyle) -> tuple[Message, ...]:
    """What the verifier is shown: the problem, and everything said so far."""
    if style == "short":
        return _user(_filled("Check {question}", question) + _short_history(said))
    history = _full_history(said) if said else "(nothing yet)"
    return _user(f"{_filled(_VERIFIER, question)}{_HISTORY}{history}{_VERIFIER_END}")


def refiner_prompt(question: str, said: Sequence[Said], style: PromptStyle) -> tuple[Message, ...]:
    """What the refiner is shown: the problem, and everything said so far."""
    if style == "short":
        return _user(_filled("Refine {question}", question) + _short_history(said))
    history = _full_history(said) if said else "(nothing yet)"
    return _user(f"{_filled(_REFINER, question)}{_HISTORY}{history}")


_PROMPTS = {"solver": solver_prompt, "verifier": verifier_prompt, "refiner": refiner_prompt}


def prompt_of(role: str, question: str, said: Sequence[Said], style: PromptStyle) -> tuple[Message, ...]:
    """What an agent of a role is shown."""
    return _PROMPTS[role](question, said, style)


@functools.lru_cache(maxsize=256)
def _filled(template: str, question: str) -> str:
    """`template` around the question made safe; kept, because every turn of an episode asks for it again."""
    return template.format(question=defuse(question, _TAGS))


def _user(content: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": content},)


def _full_history(said: Sequence[Said]) -> str:
    return "\n".join([turn.full for turn in said])


def _short_history(said: Sequence[Said]) -> str:
    return "".join([f"\n{turn.short}" for turn in said])
