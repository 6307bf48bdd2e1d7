"""`OwnBooks`: the base of wrappers whose agents, rewards or endings differ from those of the environment inside."""

from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from mas_envs.errors import EpisodeOrderError

__all__ = ["OwnBooks"]


class OwnBooks(BaseWrapper[str, Any, Any]):
    """A wrapper that keeps its own agents, selection, rewards, flags and infos, copied from the environment inside.

    PettingZoo's `BaseWrapper` shows the books of the environment inside. A wrapper that takes several steps for one
    step inside, or ends an episode itself, would then report old rewards again; it keeps books of its own instead.

    Args:
        env: The environment inside.
    """

    def __init__(self, env: AECEnv[str, Any, Any]) -> None:
        super().__init__(env)
        self.agents: list[str] = []
        self.agent_selection = ""
        self.rewards: dict[str, float] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._has_reset = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode inside, and new books."""
        self.env.reset(seed=seed, options=options)
        self._has_reset = True
        self._copy_state()
        self.rewards = dict(self.env.rewards)
        self._cumulative_rewards = dict(self.env._cumulative_rewards)

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last turn, terminated, truncated and info of the selected agent."""
        self._check_running("last")
        agent_id = self.agent_selection
        return (
            self.observe(agent_id) if observe else None,
            self._cumulative_rewards[agent_id],
            self.terminations[agent_id],
            self.truncations[agent_id],
            self.infos[agent_id],
        )

    def _check_running(self, call: str) -> None:
        if not self._has_reset:
            raise EpisodeOrderError(f"{call}() of {self} before reset(); call reset() first")
        if not self.agents:
            raise EpisodeOrderError(f"{call}() of {self} after the end of the episode; call reset() to start anew")

    def _is_over(self, agent_id: str) -> bool:
        return self.terminations[agent_id] or self.truncations[agent_id]

    def _step_inside(self, action: Any) -> None:
        """Let the selected agent take a step inside, and book what it brought to everyone."""
        acting, was_over = self.agent_selection, self._is_over(self.agent_selection)
        self.env.step(action)
        self._copy_state()
        if was_over:
            self._leave_books()
        else:
            self._book(acting, dict(self.env.rewards))

    def _book(self, acting: str, rewards: dict[str, float]) -> None:
        """Book the rewards of one step; what the acting agent was told by `last()` is settled."""
        self._cumulative_rewards[acting] = 0.0
        self.rewards = rewards
        for agent_id, reward in rewards.items():
            self._cumulative_rewards[agent_id] = self._cumulative_rewards.get(agent_id, 0.0) + reward
        self._leave_books(rewards)

    def _leave_books(self, rewards: dict[str, float] | None = None) -> None:
        """Strike out the agents that have left."""
        self.rewards = {agent_id: (rewards or {}).get(agent_id, 0.0) for agent_id in self.agents}
        self._cumulative_rewards = {agent_id: self._cumulative_rewards.get(agent_id, 0.0) for agent_id in self.agents}

    def _copy_state(self) -> None:
        self.agents = list(self.env.agents)
        self.agent_selection = self.env.agent_selection
        self.terminations = dict(self.env.terminations)
        self.truncations = dict(self.env.truncations)
        self.infos = dict(self.env.infos)
