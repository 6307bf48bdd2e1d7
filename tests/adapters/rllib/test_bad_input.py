"""What the RLlib adapter refuses, in one sentence each; no Ray is started."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("ray", reason="needs mas-envs[rllib]")

import adapters.rllib
import mas_envs
from adapters.rllib import RayVersionError, TeamEnv, ppo_config
from adapters.rllib.ray_parts import check_version
from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError
from mas_envs.wrappers import ByteTokenizer, ParallelView
from tests.adapters.relay import Beat, Relay, all_end
from tests.adapters.rllib.relays import WORD, relay_config

LOOP = {"id": "MathLoop-v0"}
TOKENS = {"max_prompt_tokens": 8, "max_new_tokens": 2}


class Floats(Relay):
    """The relay for agents that see and say numbers."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (2, 2), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (1,), np.float32)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {**LOOP, "max_turns": 3},
            r"env_config has 'max_turns'; expected env or id, kwargs, phrases or tokenizer, max_pr",
        ),
        (
            {},
            r"env_config has env=None, id=None and kwargs=\{\}; expected either 'id', with 'kwargs' for make, or 'env'",
        ),
        ({**LOOP, "env": Relay([])}, r"env_config has env=.*Relay.*, id='MathLoop-v0' .*; expected either 'id'"),
        (
            {"env": Relay([]), "kwargs": {"max_loops": 1}},
            r"kwargs=\{'max_loops': 1\}; expected either 'id', with 'kwargs'",
        ),
        (
            {"env": ParallelView(mas_envs.make("MathLoop-v0"))},
            r"env_config\['env'\]=.* is a ParallelView; expected a PettingZoo AECEnv, such as mas_envs.make returns",
        ),
        (
            {**LOOP, "max_new_tokens": 3},
            r"lengths \{'max_new_tokens': 3\}, .*; expected both max_prompt_tokens and max_new",
        ),
        (
            {**LOOP, "phrases": ["a"]},
            r"lengths \{\}, phrases=\['a'\] and tokenizer=None; expected both max_prompt_tokens",
        ),
        (
            {**LOOP, **TOKENS, "phrases": ["a"], "tokenizer": ByteTokenizer()},
            r"phrases=\['a'\] and tokenizer=<.*; expected .* at most one of phrases and tokenizer",
        ),
        (
            LOOP,
            r"solver_0 has the space Dict\('messages': .*, which no RLlib module takes; expected token ids: put max_",
        ),
        ({**LOOP, **TOKENS, "max_new_tokens": 0}, r"max_new_tokens=0: expected an integer of at least 1"),
    ],
)
def test_configuration_that_cannot_be_built_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        TeamEnv(config)


def test_spaces_that_are_not_token_ids_need_another_module() -> None:
    env = TeamEnv({"env": Floats([])})
    assert env.action_spaces["a_0"].shape == (1,)
    with pytest.raises(
        BadArgumentError, match=r"TokenModule got the spaces Box\(.*expected a one-dimensional Box of int"
    ):
        ppo_config({"env": Floats([])})


def test_step_outside_an_episode_is_refused() -> None:
    env = TeamEnv(relay_config([Beat("a_0", {}, all_end())]))
    with pytest.raises(
        EpisodeOrderError, match=r"step\(\) of TeamEnv before reset\(\); expected a running episode: call"
    ):
        env.step({"a_0": WORD})
    env.reset(seed=0)
    env.step({"a_0": WORD})
    with pytest.raises(
        EpisodeOrderError, match=r"step\(\) of TeamEnv after the end of the episode; expected a running"
    ):
        env.step({"a_0": WORD})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (
            {"verifier_0": 3},
            r"actions \{'verifier_0': 3\} have none for solver_0; expected a mapping with one for the ag",
        ),
        (3, r"actions 3 have none for solver_0; expected a mapping with one for the agent whose turn it is"),
        ({"solver_0": "four"}, r"action 'four' of type str for solver_0; expected one token id below 258; encode text"),
        ({"solver_0": 258}, r"token id 258 for solver_0; expected 0 to 257"),
        ({"solver_0": np.float32(3)}, r"action np.float32\(3.0\) of type float32 for solver_0; expected one token id"),
    ],
)
def test_action_of_the_wrong_kind_is_refused_and_nothing_has_happened(actions: Any, message: str) -> None:
    env = TeamEnv({**LOOP, **TOKENS})
    observations, _ = env.reset(seed=0)
    with pytest.raises(InvalidActionError, match=message):
        env.step(actions)
    assert env.aec.agent_selection == "solver_0"
    assert np.array_equal(env.aec.observe("solver_0"), observations["solver_0"])


@pytest.mark.parametrize("version", ["2.57.1", "2.61.0", "3.0.0"])
def test_versions_of_ray_that_were_not_tested_are_refused(version: str) -> None:
    with pytest.raises(
        RayVersionError, match=rf"ray {version} was not tested; expected >= 2.58 and < 2.61: install one"
    ):
        check_version(version)


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'adapters.rllib' has no attribute 'PettingZooEnv'"):
        _ = adapters.rllib.PettingZooEnv


def command_after(preparation: str) -> subprocess.CompletedProcess[str]:
    """`python -m adapters.rllib MathLoop-v0` in an interpreter in which something is wrong."""
    run = "import runpy; sys.argv = ['rllib', 'MathLoop-v0']; runpy.run_module('adapters.rllib', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {preparation}; {run}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("library", ["ray", "torch"])
def test_missing_extra_is_one_sentence(library: str) -> None:
    done = command_after(f"sys.modules['{library}'] = None")
    assert done.returncode == 1
    assert done.stderr == f"adapters.rllib needs {library}; pip install 'mas-envs[rllib]'\n"


def test_wrong_version_is_one_sentence() -> None:
    done = command_after("import importlib.metadata; importlib.metadata.version = lambda name: '2.40.0'")
    assert (done.returncode, done.stderr) == (
        1,
        "ray 2.40.0 was not tested; expected >= 2.58 and < 2.61: install one of those\n",
    )
