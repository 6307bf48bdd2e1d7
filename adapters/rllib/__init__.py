"""RLlib: team environments, a module for token ids, policies by role, and agent-wise normalised PPO."""

from adapters.rllib.agent_wise import AgentWiseGAE, AgentWisePPOLearner, standardised_by_agent
from adapters.rllib.modules import TokenModule
from adapters.rllib.multi_agent_env import TeamEnv
from adapters.rllib.ppo import policy_by_role, ppo_config, start_ray
from adapters.rllib.ray_parts import RayVersionError

__all__ = [
    "AgentWiseGAE",
    "AgentWisePPOLearner",
    "RayVersionError",
    "TeamEnv",
    "TokenModule",
    "policy_by_role",
    "ppo_config",
    "standardised_by_agent",
    "start_ray",
]
