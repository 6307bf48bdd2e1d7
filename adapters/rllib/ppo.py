"""A PPO configuration for a team: policies by role or shared, token modules, agent-wise normalisation."""

from collections.abc import Mapping
from typing import Any

from adapters.rllib.agent_wise import AgentWisePPOLearner
from adapters.rllib.modules import TokenModule
from adapters.rllib.multi_agent_env import TeamEnv
from adapters.rllib.ray_parts import MultiRLModuleSpec, PPOConfig, RLModuleSpec

__all__ = ["policy_by_role", "ppo_config", "start_ray"]

SHARED = "team"
_STORE_BYTES = 200 * 2**20


def policy_by_role(agent_id: str, *args: Any, **kwargs: Any) -> str:
    """The policy of an agent: its role. For RLlib's `policy_mapping_fn`.

    >>> policy_by_role("solver_3")
    'solver'
    """
    return agent_id.rpartition("_")[0]


def shared_policy(agent_id: str, *args: Any, **kwargs: Any) -> str:
    """One policy for everybody."""
    return SHARED


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
        BadArgumentError: If the environment cannot be built, or RLlib cannot take its spaces.
    """
    env = TeamEnv(env_config)
    mapping = shared_policy if shared else policy_by_role
    policies = list(dict.fromkeys(mapping(agent) for agent in env.possible_agents))
    env.close()
    module = RLModuleSpec(module_class=TokenModule, model_config=dict(model_config or {}))
    config = (
        PPOConfig()
        .environment(TeamEnv, env_config=dict(env_config), disable_env_checking=True)
        .env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=8, batch_mode="truncate_episodes")
        .learners(num_learners=0)
        .multi_agent(policies=set(policies), policy_mapping_fn=mapping)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(policies, module)))
        .training(gamma=1.0, lambda_=1.0, train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=4, lr=1e-3)
    )
    return config.training(learner_class=AgentWisePPOLearner) if agent_wise else config


def start_ray(num_cpus: int = 1) -> None:
    """Start Ray in this machine with a small object store; its default takes a quarter of the memory.

    Args:
        num_cpus: Processes that Ray may run at the same time.
    """
    import ray

    ray.init(
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=_STORE_BYTES,
        log_to_driver=False,
        logging_level="error",
        ignore_reinit_error=True,
    )
