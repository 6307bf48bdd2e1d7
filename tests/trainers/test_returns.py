"""Returns over later turns, and the penalty for long completions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.returns import overlong_penalty, returns_to_go


def test_each_agent_collects_its_own_later_rewards() -> None:
    rewards = [1.0, 10.0, 2.0, 20.0, 4.0, 7.0]
    agents, rollouts = ["a", "b", "a", "b", "a", "a"], ["x"] * 5 + ["y"]
    assert returns_to_go(rewards, rollouts, agents, discount=0.5).tolist() == [3.0, 20.0, 4.0, 20.0, 4.0, 7.0]


def test_a_reward_at_the_end_reaches_every_turn_without_discount() -> None:
    assert returns_to_go([0.0, 0.0, 1.0], ["x"] * 3, ["a"] * 3).tolist() == [1.0, 1.0, 1.0]


def test_a_discount_of_zero_leaves_the_rewards() -> None:
    assert returns_to_go([3.0, 4.0], ["x"] * 2, ["a"] * 2, discount=0.0).tolist() == [3.0, 4.0]


def test_no_rows_have_no_returns() -> None:
    assert returns_to_go([], [], []).shape == (0,)


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 2), st.integers(0, 2)), max_size=40),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_returns_equal_a_plain_backward_loop(rows: list[tuple[int, int, int]], discount: float) -> None:
    running: dict[tuple[int, int], float] = {}
    expected = []
    for reward, rollout, agent in reversed(rows):
        running[rollout, agent] = reward + discount * running.get((rollout, agent), 0.0)
        expected.append(running[rollout, agent])
    rewards, rollouts, agents = ([row[index] for row in rows] for index in range(3))
    assert returns_to_go(rewards, rollouts, agents, discount).tolist() == pytest.approx(expected[::-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount": 1.5}, r"discount is 1.5; expected a number from 0 to 1; use 1.0 for plain sums"),
        ({"rewards": [np.nan, 0.0]}, r"rewards has the shape \(2,\) and 1 values that are not finite; .*; repair"),
        ({"rewards": [[0.0, 0.0]]}, r"rewards has the shape \(1, 2\)"),
        ({"agents": ["a"]}, r"agents has 1 entries for 2 rewards"),
    ],
)
def test_bad_returns_input_is_refused(change: dict[str, Any], message: str) -> None:
    good = {"rewards": [0.0, 1.0], "rollouts": ["x", "x"], "agents": ["a", "a"]}
    with pytest.raises(ValueError, match=message):
        returns_to_go(**{**good, **change})


def test_the_overlong_penalty_grows_over_the_buffer() -> None:
    lengths = [0, 16384, 18432, 20480, 20481, 30000]
    assert overlong_penalty(lengths, max_tokens=20480, buffer=4096).tolist() == [0.0, 0.0, -0.5, -1.0, -1.0, -1.0]


def test_without_a_buffer_only_longer_completions_are_punished() -> None:
    assert overlong_penalty([10, 11], max_tokens=10, buffer=0).tolist() == [0.0, -1.0]
    assert overlong_penalty([], max_tokens=10, buffer=5).shape == (0,)


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "buffer", "message"),
    [
        ([1], 10, 11, r"max_tokens is 10 and buffer is 11; expected 0 <= buffer <= max_tokens; shrink the buffer"),
        ([1], 0, 0, r"max_tokens is 0 and buffer is 0"),
        ([-1], 10, 5, r"lengths holds a negative number or a NaN; expected numbers >= 0; pass completion lengths"),
    ],
)
def test_bad_penalty_input_is_refused(lengths: list[int], max_tokens: int, buffer: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overlong_penalty(lengths, max_tokens, buffer)
