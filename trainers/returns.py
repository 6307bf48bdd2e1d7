"""What happens to rewards before advantages: returns over later turns, and a penalty for long completions."""

import numpy as np
from numpy.typing import ArrayLike

from trainers.grouping import Floats, Ids, encode, pair
from trainers.input_errors import TrainingInputError

__all__ = ["overlong_penalty", "returns_to_go"]


def returns_to_go(rewards: ArrayLike, rollouts: Ids, agents: Ids, discount: float = 1.0) -> Floats:
    """The discounted sum of an agent's rewards from each of its turns to the end of the episode.

    The discount counts the agent's own turns, not the environment's steps: what its team-mates do in between takes no
    time. With rewards at the end only and a discount of 1 every turn gets the final reward.

    >>> returns_to_go([1.0, 0.0, 2.0], ["r"] * 3, ["a", "b", "a"], discount=0.5)
    array([2., 0., 2.])

    Source: GiGPO, arXiv 2505.10978, equation 5. Differs in: one sum for each agent of an episode.

    Args:
        rewards: [R] float64, one per turn, finite; rows of an agent in one rollout are in time order.
        rollouts: [R] ids of any hashable kind; unique over all groups.
        agents: [R] ids.
        discount: In [0, 1], per turn.

    Returns:
        [R] float64, reward unit.

    Raises:
        TrainingInputError: If lengths differ, a reward is not finite, or the discount is out of range.
    """
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise TrainingInputError(
            f"rewards has the shape {values.shape} and {int((~np.isfinite(values)).sum())} values that are not finite",
            "[R] finite numbers",
            "repair the rewards first",
        )
    if not 0.0 <= discount <= 1.0:
        raise TrainingInputError(f"discount is {discount!r}", "a number from 0 to 1", "use 1.0 for plain sums")
    size = values.size
    trajectory = pair(encode(rollouts, "rollouts", size)[0], encode(agents, "agents", size)[0])
    order = np.argsort(trajectory.codes, kind="stable")
    codes, result = trajectory.codes[order], values[order]
    ends = np.flatnonzero(np.append(codes[1:] != codes[:-1], True)) if size else np.zeros(0, dtype=np.int64)
    starts = np.append(0, ends[:-1] + 1) if size else ends
    row, start = ends - 1, starts  # all trajectories at once, from their last turn but one backwards
    while row.size:
        inside = row >= start
        row, start = row[inside], start[inside]
        result[row] += discount * result[row + 1]
        row = row - 1
    returns = np.empty_like(result)
    returns[order] = result
    return returns


def overlong_penalty(lengths: ArrayLike, max_tokens: int, buffer: int) -> Floats:
    """A reward term that falls from 0 to -1 over the last tokens that a completion may have.

    >>> overlong_penalty([80, 90, 95, 100, 101], max_tokens=100, buffer=10)
    array([ 0. ,  0. , -0.5, -1. , -1. ])

    Source: soft overlong punishment of DAPO, arXiv 2503.14476, equation 13. Differs in: nothing.

    Args:
        lengths: [R] completion tokens, >= 0.
        max_tokens: Length at which the penalty is complete, > 0.
        buffer: Tokens before it over which the penalty grows, in [0, max_tokens]; 0: none up to `max_tokens`, -1 above.

    Returns:
        [R] float64 in [-1, 0]; weigh it and add it to the rewards.

    Raises:
        TrainingInputError: If a number is out of range.
    """
    if not 0 <= buffer <= max_tokens or max_tokens <= 0:
        raise TrainingInputError(
            f"max_tokens is {max_tokens!r} and buffer is {buffer!r}", "0 <= buffer <= max_tokens", "shrink the buffer"
        )
    tokens = np.asarray(lengths, dtype=np.float64)
    if not (tokens >= 0).all():
        raise TrainingInputError("lengths holds a negative number or a NaN", "numbers >= 0", "pass completion lengths")
    if buffer == 0:
        return np.where(tokens > max_tokens, -1.0, 0.0)
    return -np.clip((tokens - (max_tokens - buffer)) / buffer, 0.0, 1.0) + 0.0
