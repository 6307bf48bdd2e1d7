"""Agent-wise advantage normalisation inside RLlib's PPO: each agent by its own statistics, also on a shared policy."""

from typing import Any

import torch
from torch import Tensor

from adapters.rllib.ray_parts import Columns, GeneralAdvantageEstimation, Postprocessing, PPOTorchLearner
from mas_envs.errors import BadArgumentError

__all__ = ["AgentWiseGAE", "AgentWisePPOLearner", "standardised_by_agent"]


def standardised_by_agent(
    advantages: Tensor, agent_ids: list[str], is_real: Tensor, *, min_std: float = 1e-4
) -> Tensor:
    """[N] advantages with mean 0 and deviation 1 over each agent's real rows; other rows get 0.

    Args:
        advantages: [N].
        agent_ids: N ids.
        is_real: [N] bool; False for rows that the loss leaves out.
        min_std: Deviations below count as this.
    """
    result = torch.zeros_like(advantages)
    for agent in dict.fromkeys(agent_ids):
        rows = torch.tensor([other == agent for other in agent_ids], device=advantages.device) & is_real
        values = advantages[rows]
        if values.numel():
            result[rows] = (values - values.mean()) / values.std(unbiased=False).clamp_min(min_std)
    return result


class AgentWiseGAE(GeneralAdvantageEstimation):
    """Advantages by GAE, then standardised per module and agent over real rows.

    RLlib's own piece standardises per module, the artificial row at the end of each episode included (ray #57989).
    Standardising is affine, so that doing it again per agent gives what it would have given at once.

    Source: Dr. MAS, arXiv 2602.08847, with GAE in the place of group baselines.
    """

    def __call__(self, *, rl_module: Any, episodes: Any, batch: Any, **kwargs: Any) -> Any:
        """The batch with its advantages replaced; called by RLlib."""
        batch = super().__call__(rl_module=rl_module, episodes=episodes, batch=batch, **kwargs)
        parts = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        for module_id, rows in batch.items():
            if Postprocessing.ADVANTAGES not in rows:
                continue
            if rl_module[module_id].is_stateful():
                raise BadArgumentError(
                    f"module {module_id!r} is stateful: RLlib pads its rows with zeros that would count; use a module "
                    "without state, such as TokenModule"
                )
            agent_ids = [
                part.agent_id for part in parts if part.module_id in (None, module_id) for _ in range(len(part))
            ]
            advantages = rows[Postprocessing.ADVANTAGES]
            assert len(agent_ids) == len(advantages)
            is_real = rows[Columns.LOSS_MASK].bool()
            rows[Postprocessing.ADVANTAGES] = standardised_by_agent(advantages, agent_ids, is_real)
        return batch


class AgentWisePPOLearner(PPOTorchLearner):
    """RLlib's PPO learner with `AgentWiseGAE`: `config.learners(learner_class=AgentWisePPOLearner)`."""

    def build(self) -> None:
        """Put the piece in the place of RLlib's; called by RLlib."""
        super().build()
        self._learner_connector.remove("GeneralAdvantageEstimation")
        self._learner_connector.append(AgentWiseGAE(gamma=self.config.gamma, lambda_=self.config.lambda_))
