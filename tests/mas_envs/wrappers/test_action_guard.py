import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.errors import BadArgumentError, InvalidActionError
from mas_envs.wrappers import ActionGuard
from tests.mas_envs.wrappers.contract import REJECT, SOLUTION, WRONG, Echo, assert_passes_pettingzoo, math_loop, play


def guarded(max_chars: int = 10) -> ActionGuard:
    env = ActionGuard(Echo(), max_chars=max_chars)
    env.reset()
    return env


def heard(env: ActionGuard) -> list[str]:
    words: list[str] = env.unwrapped.heard
    return words


def test_passes_the_tests_of_pettingzoo() -> None:
    assert_passes_pettingzoo(ActionGuard(Echo()))
    assert_passes_pettingzoo(ActionGuard(math_loop()))


@given(st.text(st.characters(codec="utf-8"), max_size=10))
def test_clean_action_passes_unchanged_and_unflagged(action: str) -> None:
    env = guarded()
    env.step(action)
    assert heard(env) == [action]
    assert env.infos["speaker_0"]["action_cut"] is False


@given(st.text(st.characters(), max_size=40))
def test_any_action_arrives_encodable_and_within_the_limit(action: str) -> None:
    env = guarded()
    env.step(action)
    assert len(heard(env)[0]) <= 10
    assert heard(env)[0].encode("utf-8").decode("utf-8") == heard(env)[0]


def test_over_long_action_is_cut_and_flagged() -> None:
    env = guarded()
    env.step("x" * 11)
    assert heard(env) == ["x" * 10]
    assert env.infos["speaker_0"]["action_cut"] is True
    assert env.infos["listener_0"]["action_cut"] is False


def test_lone_surrogate_is_replaced_and_flagged() -> None:
    env = guarded()
    env.step("a\ud800b")
    assert heard(env) == ["a\ufffdb"]
    assert env.infos["speaker_0"]["action_cut"] is True


def test_flag_belongs_to_the_last_action_of_the_agent() -> None:
    env = guarded()
    for action in ("x" * 11, "b", "c"):
        env.step(action)
    assert env.infos["speaker_0"]["action_cut"] is False


def test_flag_is_there_from_reset_on_and_cleared_by_it() -> None:
    env = guarded()
    env.step("x" * 11)
    env.reset()
    assert {agent_id: info["action_cut"] for agent_id, info in env.infos.items()} == {
        "speaker_0": False,
        "listener_0": False,
    }


@pytest.mark.parametrize("action", [7, None, b"bytes", ["list"]])
def test_action_that_is_no_text_is_refused_and_the_episode_unchanged(action: object) -> None:
    env = guarded()
    with pytest.raises(InvalidActionError, match=re.escape(f"action {action!r} of type {type(action).__name__}")):
        env.step(action)
    assert heard(env) == []
    assert env.agent_selection == "speaker_0"


def test_text_for_an_agent_that_has_ended_is_refused() -> None:
    env = guarded()
    env.step("bye")
    with pytest.raises(InvalidActionError, match="'more' for speaker_0, which has ended; the only action it can take"):
        env.step("more")
    env.step(None)
    assert env.agents == ["listener_0"]


def test_guard_changes_no_episode_of_clean_actions() -> None:
    plain, wrapped = math_loop(), ActionGuard(math_loop())
    script = [WRONG, REJECT, SOLUTION]
    for env in (plain, wrapped):
        env.reset(seed=4)
    assert play(plain, script) == play(wrapped, script)
    assert plain.transcript == wrapped.transcript


def test_copy_in_mid_episode_has_flags_of_its_own() -> None:
    env = guarded()
    twin = copy.deepcopy(env)
    env.step("x" * 11)
    assert twin.infos["speaker_0"]["action_cut"] is False


def test_limit_below_one_is_refused() -> None:
    with pytest.raises(BadArgumentError, match="max_chars=0: expected an integer of at least 1"):
        ActionGuard(Echo(), max_chars=0)
