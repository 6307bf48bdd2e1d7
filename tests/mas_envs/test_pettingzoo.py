"""PettingZoo's own tests on every registered environment."""

import os
import subprocess
import sys
import warnings

import pettingzoo
import pytest
from pettingzoo.test import api_test, render_test, seed_test

import mas_envs
from mas_envs.math_loop.env import MathLoopEnv

IDS = sorted(mas_envs.registry)
BENIGN = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
)
REPLAY = """
import json, random, sys, mas_envs
env = mas_envs.make(sys.argv[1])
story = []
for seed in (7, 8):
    env.reset(seed=seed)
    rng = random.Random(seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        story.append([agent, observation, reward, terminated, truncated, info])
        skill = mas_envs.Skill(accuracy=0.5, malformed=0.2)
        env.step(None if terminated or truncated else env.unwrapped.scripted_action(agent, rng, skill))
    env.action_space(env.possible_agents[0]).seed(seed)
    story.append(env.action_space(env.possible_agents[0]).sample())
print(json.dumps(story))
"""


def test_the_built_in_environments_are_registered() -> None:
    assert {"MathLoop-v0", "MathSolo-v0", "HierarchicalSearch-v0", "SearchSolo-v0"} <= set(IDS)


@pytest.mark.parametrize("env_id", IDS)
def test_api_test_passes_with_benign_warnings_only(env_id: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(mas_envs.make(env_id), num_cycles=100)
    assert {str(warning.message) for warning in caught} <= set(BENIGN)


@pytest.mark.parametrize("env_id", IDS)
def test_seed_test_passes(env_id: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seed_test(lambda: mas_envs.make(env_id), num_cycles=30)
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize("env_id", IDS)
def test_render_test_passes(env_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    render_test(lambda render_mode: mas_envs.make(env_id, render_mode=render_mode))
    assert f"[1] {mas_envs.make(env_id).possible_agents[0]}" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", IDS)
def test_same_seed_and_actions_give_the_same_episode_in_every_process(env_id: str) -> None:
    stories = [
        subprocess.run(
            [sys.executable, "-c", REPLAY, env_id],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "12345")
    ]
    assert stories[0].count(mas_envs.make(env_id).possible_agents[0]) > 2
    assert stories[0] == stories[1]


@pytest.mark.parametrize("env_id", IDS)
def test_pettingzoo_makes_the_same_environment(env_id: str) -> None:
    mirrored, own = pettingzoo.make("aec", f"mas/{env_id}"), mas_envs.make(env_id)
    assert type(mirrored.unwrapped) is type(own.unwrapped)
    mirrored.reset(seed=5)
    own.reset(seed=5)
    assert mirrored.observe(own.possible_agents[0]) == own.observe(own.possible_agents[0])


def test_max_cycles_of_pettingzoo_is_the_limit_of_turns() -> None:
    env = pettingzoo.make("aec", "mas/MathLoop-v0", max_cycles=1, max_loops=3)
    assert isinstance(env.unwrapped, MathLoopEnv)
    assert (env.unwrapped.max_turns, env.unwrapped.max_loops) == (1, 3)
    env.reset(seed=0)
    env.step(r"\boxed{1}")
    assert env.truncations == {"solver_0": True, "verifier_0": True}
