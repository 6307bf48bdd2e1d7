"""What is used of RLlib, imported in one place: a missing or untested Ray is one sentence."""

import importlib.metadata

from adapters.versions import refuse_untested
from mas_envs.errors import MasEnvsError, MissingExtraError

SUPPORTED = ((2, 58), (2, 61))


class RayVersionError(MasEnvsError, ImportError):
    """Ray is installed in a version that was not tested."""


def check_version(version: str) -> None:
    """Refuse versions of Ray that were not tested.

    Raises:
        RayVersionError: Names the version and those that are supported.
    """
    refuse_untested("ray", version, SUPPORTED, RayVersionError)


try:
    check_version(importlib.metadata.version("ray"))
    import torch  # noqa: F401 - RLlib goes on without it, and fails later
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
    from ray.rllib.connectors.learner import GeneralAdvantageEstimation
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.rllib.evaluation.postprocessing import Postprocessing
except RayVersionError:
    raise
except (ImportError, importlib.metadata.PackageNotFoundError) as error:
    missing = (error.name or "ray").split(".")[0]
    raise MissingExtraError(f"adapters.rllib needs {missing}; pip install 'mas-envs[rllib]'") from error

__all__ = [
    "Columns",
    "GeneralAdvantageEstimation",
    "MultiAgentEnv",
    "MultiRLModuleSpec",
    "PPOConfig",
    "PPOTorchLearner",
    "Postprocessing",
    "RLModuleSpec",
    "RayVersionError",
    "TorchRLModule",
    "ValueFunctionAPI",
    "check_version",
]
