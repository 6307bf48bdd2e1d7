import copy
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pettingzoo import AECEnv

from mas_envs.errors import EpisodeOrderError, InvalidActionError
from mas_envs.wrappers import ActionGuard, RecordEpisodes, SingleAgentView, TokenEncoding, TurnLimit
from tests.mas_envs.wrappers.contract import math_loop, play


def approve(messages: object) -> str:
    return "<verify>approve</verify>"


def turn_limit(path: Path) -> AECEnv[str, Any, Any]:
    return TurnLimit(math_loop(max_loops=9), 5)


def token_encoding(path: Path) -> AECEnv[str, Any, Any]:
    return TokenEncoding(math_loop(), max_prompt_tokens=64, max_new_tokens=8)


def record_episodes(path: Path) -> AECEnv[str, Any, Any]:
    return RecordEpisodes(math_loop(), path)


def action_guard(path: Path) -> AECEnv[str, Any, Any]:
    return ActionGuard(math_loop())


def single_agent(path: Path) -> AECEnv[str, Any, Any]:
    return SingleAgentView(math_loop(), "solver_0", {"verifier_0": approve})


def all_of_them(path: Path) -> AECEnv[str, Any, Any]:
    inside = TurnLimit(ActionGuard(math_loop(max_loops=3)), 4)
    return RecordEpisodes(SingleAgentView(inside, "solver_0", {"verifier_0": approve}), path)


WRAPPED = [turn_limit, token_encoding, record_episodes, action_guard, single_agent, all_of_them]
"""Each wrapper over `MathLoop-v0`, and a stack of them."""

each_wrapper = pytest.mark.parametrize("make", WRAPPED, ids=lambda make: make.__name__)
Make = Callable[[Path], AECEnv[str, Any, Any]]


@each_wrapper
def test_passes_our_own_checker(make: Make, tmp_path: Path) -> None:
    checker = pytest.importorskip("mas_envs.checker", reason="check_env is not there yet")
    report = checker.check_env(functools.partial(make, tmp_path / "episodes.jsonl"), num_episodes=8)
    assert report.passed


@each_wrapper
@pytest.mark.parametrize("call", ["last", "step", "observe"])
def test_call_before_reset_says_so(make: Make, call: str, tmp_path: Path) -> None:
    env = make(tmp_path / "episodes.jsonl")
    arguments = {"last": (), "step": ("x",), "observe": ("solver_0",)}[call]
    with pytest.raises(EpisodeOrderError, match="before reset"):
        getattr(env, call)(*arguments)


@each_wrapper
@pytest.mark.parametrize("call", ["last", "step"])
def test_call_after_the_end_says_so(make: Make, call: str, tmp_path: Path) -> None:
    env = make(tmp_path / "episodes.jsonl")
    env.reset(seed=0)
    play(env, [1] * 99 if isinstance(env, TokenEncoding) else ["x"] * 99)
    with pytest.raises(EpisodeOrderError, match="after the end of the episode"):
        env.last() if call == "last" else env.step(None)


@each_wrapper
def test_refused_action_leaves_the_episode_as_it_was(make: Make, tmp_path: Path) -> None:
    env = make(tmp_path / "episodes.jsonl")
    env.reset(seed=0)
    before = copy.deepcopy(env)
    with pytest.raises(InvalidActionError):
        env.step(b"bytes")
    assert repr(env.last()) == repr(before.last())
    assert env.unwrapped.transcript == []


@each_wrapper
def test_pickled_in_mid_episode_it_goes_on(make: Make, tmp_path: Path) -> None:
    env = make(tmp_path / "episodes.jsonl")
    env.reset(seed=0)
    twin = pickle.loads(pickle.dumps(env))
    assert repr(twin.last()) == repr(env.last())
    assert twin.agents == env.agents


@each_wrapper
def test_roles_and_transcript_are_reached_through_it(make: Make, tmp_path: Path) -> None:
    env = make(tmp_path / "episodes.jsonl")
    env.reset(seed=0)
    assert env.unwrapped.role_of("solver_0") == "solver"
    assert env.transcript == []
