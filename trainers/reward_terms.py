"""Reward terms of a user's own, under names: what the trainer adds to the rewards that an environment gives."""

from collections.abc import Callable
from typing import TypeAlias

from trainers.names import NameTable
from trainers.rollout import TurnRecord

__all__ = ["REWARD_TERMS", "RewardTerm", "register_reward_term"]

RewardTerm: TypeAlias = Callable[[TurnRecord], float]
"""What a turn earns besides, in the unit of rewards; counts for that turn alone."""

REWARD_TERMS: NameTable[RewardTerm] = NameTable("reward term")
"""Terms by name; `algorithm.reward_terms` lists those that a run uses."""


def register_reward_term(name: str) -> Callable[[RewardTerm], RewardTerm]:
    """A decorator that makes a reward term known by name.

    Its weight is 1 unless `algorithm.reward_weights` says otherwise, for all agents or for one role.

    >>> @register_reward_term("brevity")
    ... def brevity(turn: TurnRecord) -> float:
    ...     return -0.01 * len(turn.reply.completion_ids)
    >>> del REWARD_TERMS["brevity"]  # an example leaves no trace

    Raises:
        TrainingInputError: If the name is taken.
    """
    return REWARD_TERMS.add(name)
