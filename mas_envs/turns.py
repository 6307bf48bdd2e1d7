"""One turn of a conversation: what was said, what it does, and how good the scripted expert is who says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Outcome", "Skill", "Turn", "outcome_fault"]

_REWARDS_EXAMPLE = "{'solver_0': {'correct': 1.0}}"


@dataclass(frozen=True)
class Turn:
    """One turn of an episode, as it stands in the transcript."""

    agent_id: str
    """Who spoke."""
    text: str
    """The completion as the environment took it: undecodable characters replaced, cut at the length limit."""
    valid: bool
    """Whether the action had the right form."""
    reason: str | None = None
    """Why it was not valid."""


@dataclass(frozen=True)
class Outcome:
    """What a message does: who speaks next, or how the episode ends, and who earns what."""

    next_agent: str | None
    """Agent that speaks next; None ends the episode."""
    rewards: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Agent id -> name of the reward term -> amount; agents that are not acting may be paid too."""
    valid: bool = True
    """Whether the message had the right form; `invalid_penalty` is charged when not."""
    reason: str | None = None
    """Why it was not valid, in words."""
    success: bool | None = None
    """At the end: whether the task was solved; None when nobody can say. With a next agent it counts only where the
    turn limit ends the episode here."""
    truncated: bool = False
    """The episode ends by something outside the task's rules, such as a failed tool."""
    error: str | None = None
    """What failed outside the agents, in words; shown in every agent's infos."""


@dataclass(frozen=True)
class Skill:
    """How good a scripted expert is, so that demonstrations can be made mediocre on purpose."""

    accuracy: float = 1.0
    """Share of turns whose content is right, in [0, 1]."""
    malformed: float = 0.0
    """Share of turns whose format is broken, in [0, 1]."""


def outcome_fault(outcome: object, example: str) -> str | None:
    """What is wrong with the outcome of a turn; None when nothing is."""
    if not isinstance(outcome, Outcome):
        return f"returned {outcome!r:.80}; expected an Outcome, such as Outcome({example!r})"
    if not isinstance(outcome.rewards, Mapping) or not all(
        isinstance(terms, Mapping) for terms in outcome.rewards.values()
    ):
        return f"paid {outcome.rewards!r:.120}; expected agent -> term -> amount, such as {_REWARDS_EXAMPLE}"
    if outcome.success is not None and not isinstance(outcome.success, bool | np.bool_):
        return f"said success={outcome.success!r:.80}; expected True, False or None"
    return None
