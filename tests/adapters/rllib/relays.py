"""The scripted two-agent relay as RLlib plays it, and what RLlib records of an episode."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import pytest

pytest.importorskip("ray", reason="needs mas-envs[rllib]")

from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

import mas_envs
from adapters.rllib import TeamEnv
from tests.adapters.relay import Beat, Relay

PHRASES = ["word", "a_0", "b_0", *map(str, range(10))]
WORD = 2  # after padding and end


def relay_config(script: Sequence[Beat], **options: Any) -> dict[str, Any]:
    return {
        "env": Relay(script, **options),
        "phrases": PHRASES,
        "max_prompt_tokens": 2,
        "max_new_tokens": 1,
    }


def runner_of(config: Any) -> MultiAgentEnvRunner:
    """What plays for RLlib, in this process; it registers one name with Gymnasium, which warns of the second time."""
    gymnasium.registry.pop("rllib-multi-agent-env-v0", None)
    return MultiAgentEnvRunner(config=config)


def recorded(env: TeamEnv) -> tuple[MultiAgentEpisode, dict[str, Any]]:
    """RLlib's record of one episode in which everybody says "word", and the infos that concern nobody alone."""
    episode = MultiAgentEpisode(
        observation_space=env.observation_spaces,
        action_space=env.action_spaces,
        agent_to_module_mapping_fn=lambda agent_id, *args: agent_id,
    )
    observations, infos = env.reset(seed=0)
    episode.add_env_reset(observations=observations, infos=infos)
    while not episode.is_done:
        actions = {env.aec.agent_selection: WORD}
        observations, rewards, terminated, truncated, infos = env.step(actions)
        common = infos.pop("__common__", {})
        episode.add_env_step(
            observations, actions, rewards, infos, terminateds=terminated, truncateds=truncated, extra_model_outputs={}
        )
        assert episode.is_done == (not env.aec.agents)
    return episode, common


def outcome(script: Sequence[Beat], **options: Any) -> dict[str, tuple[float, bool, bool]]:
    """Agent id -> return, terminated and truncated in RLlib's record, of the agents that are in it."""
    episode, _ = recorded(TeamEnv(relay_config(script, **options)))
    return {
        agent_id: (part.get_return(), part.is_terminated, part.is_truncated)
        for agent_id, part in episode.agent_episodes.items()
    }


def true_returns(script: Sequence[Beat], **options: Any) -> dict[str, float]:
    return dict(mas_envs.play(Relay(script, **options), {"*": lambda messages: "word"}).returns)
