import copy
import re

import pytest

from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError
from mas_envs.wrappers import TurnLimit
from tests.mas_envs.wrappers.contract import (
    APPROVE,
    REJECT,
    SOLUTION,
    WRONG,
    Echo,
    assert_passes_pettingzoo,
    math_loop,
    play,
)


def test_passes_the_tests_of_pettingzoo() -> None:
    assert_passes_pettingzoo(TurnLimit(math_loop(max_loops=5), 3))
    assert_passes_pettingzoo(TurnLimit(Echo(), 5))


def test_episode_is_truncated_for_everyone_at_the_limit() -> None:
    env = TurnLimit(math_loop(max_loops=9), 3)
    env.reset(seed=0)
    play(env, [WRONG, REJECT, WRONG])
    assert env.agents == []
    assert len(env.unwrapped.transcript) == 3


def test_last_turn_within_the_limit_sets_truncations_and_no_terminations() -> None:
    env = TurnLimit(math_loop(max_loops=9), 2)
    env.reset(seed=0)
    env.step(WRONG)
    assert not any(env.truncations.values())
    env.step(REJECT)
    assert env.truncations == {"solver_0": True, "verifier_0": True}
    assert env.terminations == {"solver_0": False, "verifier_0": False}


def test_episode_that_ends_at_the_limit_by_itself_is_terminated() -> None:
    env = TurnLimit(math_loop(), 2)
    env.reset(seed=0)
    env.step(SOLUTION)
    env.step(APPROVE)
    assert env.terminations == {"solver_0": True, "verifier_0": True}
    assert env.truncations == {"solver_0": False, "verifier_0": False}


def test_rewards_of_the_last_turn_reach_every_agent_once() -> None:
    env = TurnLimit(Echo(), 3)
    env.reset()
    assert play(env, ["a", "b", "c"]) == {"speaker_0": 0.75, "listener_0": 0.75}


def test_agent_that_left_early_does_not_come_back_at_the_limit() -> None:
    env = TurnLimit(Echo(), 3)
    env.reset()
    assert play(env, ["bye", "b", "c"]) == {"speaker_0": 0.25, "listener_0": 0.75}


def test_limit_that_is_not_reached_changes_nothing() -> None:
    limited, plain = TurnLimit(math_loop(), 99), math_loop()
    for env in (limited, plain):
        env.reset(seed=3)
    script = [WRONG, REJECT, SOLUTION]
    assert play(limited, script) == play(plain, script) == {"solver_0": 1.0, "verifier_0": 1.0}


def test_next_episode_counts_from_zero() -> None:
    env = TurnLimit(math_loop(max_loops=9), 2)
    for _ in range(2):
        env.reset()
        env.step(WRONG)
        assert not any(env.truncations.values())


def test_copy_in_mid_episode_counts_on_its_own() -> None:
    env = TurnLimit(math_loop(max_loops=9), 2)
    env.reset(seed=0)
    env.step(WRONG)
    twin = copy.deepcopy(env)
    env.step(REJECT)
    assert all(env.truncations.values())
    assert not any(twin.truncations.values())
    twin.step(REJECT)
    assert twin.truncations == env.truncations


def test_action_after_the_cut_is_refused() -> None:
    env = TurnLimit(math_loop(max_loops=9), 1)
    env.reset()
    env.step(WRONG)
    with pytest.raises(InvalidActionError, match="for solver_0, which has ended; the only action it can take is None"):
        env.step("more")


@pytest.mark.parametrize("call", ["last", "step"])
def test_call_before_reset_says_so(call: str) -> None:
    env = TurnLimit(math_loop(), 2)
    with pytest.raises(EpisodeOrderError, match=re.escape(f"{call}() of TurnLimit<math_loop_v0> before reset()")):
        env.last() if call == "last" else env.step("x")


def test_step_after_the_end_says_so() -> None:
    env = TurnLimit(math_loop(max_loops=9), 1)
    env.reset()
    play(env, [WRONG])
    with pytest.raises(EpisodeOrderError, match="after the end of the episode; call reset"):
        env.step(None)


@pytest.mark.parametrize("limit", [0, -1, 2.5])
def test_limit_below_one_is_refused(limit: float) -> None:
    with pytest.raises(BadArgumentError, match=re.escape(f"max_turns={limit!r}: expected an integer of at least 1")):
        TurnLimit(math_loop(), limit)  # type: ignore[arg-type]
