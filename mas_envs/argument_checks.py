"""Checks of the arguments that every text environment takes; each error names argument, value and expectation."""

import operator
from typing import Any, SupportsIndex

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.errors import BadArgumentError

__all__ = ["check_limits", "check_speaks_text", "is_whole", "seeded_generator"]


def seeded_generator(seed: object) -> np.random.Generator:
    """A generator for the seed of an episode.

    Raises:
        BadArgumentError: If the seed is not a whole number >= 0.
    """
    if not isinstance(seed, SupportsIndex) or operator.index(seed) < 0:
        raise BadArgumentError(f"seed={seed!r:.80}: expected a whole number >= 0, or None to go on with the stream")
    return np.random.default_rng(operator.index(seed))


def check_limits(max_turns: int | None, invalid_penalty: float, max_action_chars: int, render_mode: str | None) -> None:
    """Refuse limits of the wrong type or out of range.

    Raises:
        BadArgumentError: Names the argument, its value and what was expected.
    """
    if max_turns is not None and not (is_whole(max_turns) and max_turns >= 1):
        raise BadArgumentError(f"max_turns={max_turns!r}: expected a whole number >= 1, or None for no limit")
    if not isinstance(invalid_penalty, int | float | np.number) or not 0.0 <= invalid_penalty < float("inf"):
        raise BadArgumentError(f"invalid_penalty={invalid_penalty!r}: expected a finite number >= 0; it is subtracted")
    if not (is_whole(max_action_chars) and max_action_chars >= 1):
        raise BadArgumentError(f"max_action_chars={max_action_chars!r}: expected a whole number >= 1")
    if render_mode not in (None, "human", "ansi"):
        raise BadArgumentError(f"render_mode={render_mode!r}: expected 'human', 'ansi' or None")


def check_speaks_text(env: AECEnv[Any, Any, Any], user: str) -> None:
    """Refuse an environment whose agents are not shown messages, or do not say text.

    Args:
        env: The environment.
        user: What needs the messages, for the error.

    Raises:
        BadArgumentError: Names the agent and its spaces.
    """
    for agent_id in env.possible_agents:
        shown, said = env.observation_space(agent_id), env.action_space(agent_id)
        if not (isinstance(shown, spaces.Dict) and "messages" in shown.spaces and isinstance(said, spaces.Text)):
            raise BadArgumentError(
                f"{user} of {env}: {agent_id} is shown {shown!r:.80} and says {said!r:.80}; expected a Dict with "
                "'messages', and text"
            )


def is_whole(value: object) -> bool:
    """Whether `value` is an integer, which True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
