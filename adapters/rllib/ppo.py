"""A PPO configuration for a team: policies by role or shared, token modules, agent-wise normalisation."""

from collections.abc import Mapping
from typing import Any

from adapters.rllib.agent_wise import AgentWisePPOLearner
from adapters.rllib.modules import TokenModule, check_token_spaces
from adapters.rllib.multi_agent_env import TeamEnv
from adapters.rllib.ray_parts import MultiRLModuleSpec, PPOConfig, RLModuleSpec

__all__ = ["policy_by_role", "ppo_config", "shared_policy"]


def policy_by_role(agent_id: str, *args: Any, **kwargs: Any) -> str:
    """The policy of an agent: its role. For RLlib's `policy_mapping_fn`, which passes more than the id.

    >>> policy_by_role("solver_3"), policy_by_role("judge")
    ('solver', 'judge')
    """
    return agent_id.rpartition("_")[0] or agent_id


def shared_policy(agent_id: str, *args: Any, **kwargs: Any) -> str:
    """The same policy, `team`, for every agent. For RLlib's `policy_mapping_fn`."""
    return "team"


def ppo_config(
    env_config: Mapping[str, Any],
    *,
    shared: bool = False,
    agent_wise: bool = True,
    num_env_runners: int = 0,
    model_config: Mapping[str, Any] | None = None,
) -> Any:  # Any: ray has no types
    """RLlib's `PPOConfig` for a team; change it further with RLlib's own methods.

    Args:
        env_config: See `TeamEnv`.
        shared: One policy for all agents instead of one for each role.
        agent_wise: Normalise advantages by agent; False leaves RLlib's own normalisation, by policy.
        num_env_runners: Processes that play; 0 plays in this one.
        model_config: Settings of `TokenModule`.

    Raises:
        BadArgumentError: If the environment cannot be built, or its spaces are not token ids.
    """
    env = TeamEnv(env_config)
    for agent_id in env.possible_agents:
        check_token_spaces(env.observation_spaces[agent_id], env.action_spaces[agent_id])
    mapping = shared_policy if shared else policy_by_role
    policies = list(dict.fromkeys(map(mapping, env.possible_agents)))
    env.close()
    module = RLModuleSpec(module_class=TokenModule, model_config=dict(model_config or {}))
    config = (
        PPOConfig()
        .environment(TeamEnv, env_config=dict(env_config), disable_env_checking=True)  # the check plays a turn
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=8,
            batch_mode="truncate_episodes",  # for complete ones each sample() starts from the same seed
            episodes_to_numpy=False,  # RLlib converts all finished episodes at every step: two thirds of the time
        )
        .learners(num_learners=0)
        .multi_agent(policies=policies, policy_mapping_fn=mapping)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(policies, module)))
        .training(gamma=1.0, lambda_=1.0, train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=4, lr=1e-3)
    )
    return config.learners(learner_class=AgentWisePPOLearner) if agent_wise else config
