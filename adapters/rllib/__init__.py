"""RLlib: team environments, a module for token ids, policies by role, and agent-wise normalised PPO.

Ray is imported with the first name that is taken from here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapters.rllib.agent_wise import AgentWiseGAE, AgentWisePPOLearner, standardised_by_agent
    from adapters.rllib.modules import TokenModule
    from adapters.rllib.multi_agent_env import TeamEnv
    from adapters.rllib.ppo import policy_by_role, ppo_config, shared_policy
    from adapters.rllib.ray_parts import RayVersionError
    from adapters.rllib.running_ray import ray_session
    from adapters.rllib.sums import small_sums, success_frac

__all__ = [
    "AgentWiseGAE",
    "AgentWisePPOLearner",
    "RayVersionError",
    "TeamEnv",
    "TokenModule",
    "policy_by_role",
    "ppo_config",
    "ray_session",
    "shared_policy",
    "small_sums",
    "standardised_by_agent",
    "success_frac",
]

_FILES = {
    "agent_wise": ("AgentWiseGAE", "AgentWisePPOLearner", "standardised_by_agent"),
    "modules": ("TokenModule",),
    "multi_agent_env": ("TeamEnv",),
    "ppo": ("policy_by_role", "ppo_config", "shared_policy"),
    "ray_parts": ("RayVersionError",),
    "running_ray": ("ray_session",),
    "sums": ("small_sums", "success_frac"),
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FILE_OF[name]}"), name)
