"""`ParallelView`: a PettingZoo `ParallelEnv` over turns, in which only the agents whose turn it is act."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from mas_envs.errors import EpisodeOrderError, InvalidActionError, MasEnvsError

__all__ = ["ParallelView"]


class ParallelView(ParallelEnv[str, Any, Any]):
    """One turn per step; all agents are shown what they may see, but only the active ones act.

    `step` takes an action for each active agent and ignores those of others; it always returns five dictionaries, over
    the agents that were alive before. Every info has two more keys: `is_active`, whether the agent is to act next, and
    `active_agent`, the one whose turn it is (None at the end).

    An environment in which several agents may speak without seeing each other's words says so by an attribute or
    property `simultaneous`: the ids of the agents that may act in one step now, the selected one among them. That none
    of them is shown what another has just said is checked at every step.

    >>> import mas_envs
    >>> view = ParallelView(mas_envs.make("MathLoop-v0"))
    >>> observations, infos = view.reset(seed=0)
    >>> view.active_agents, infos["verifier_0"]["is_active"]
    (['solver_0'], False)
    >>> _, rewards, terminations, truncations, infos = view.step({"solver_0": "four"})
    >>> rewards, infos["verifier_0"]["is_active"]
    ({'solver_0': -0.1, 'verifier_0': 0.0}, True)

    Args:
        env: An AEC environment.
    """

    def __init__(self, env: AECEnv[str, Any, Any]) -> None:
        self.env = env
        self.metadata = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self._has_reset = False

    @property
    def unwrapped(self) -> Any:
        """The AEC environment at the bottom."""
        return self.env.unwrapped

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Agent id -> space of what it is shown."""
        return {agent_id: self.observation_space(agent_id) for agent_id in self.possible_agents}

    @property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Agent id -> space of what it may say."""
        return {agent_id: self.action_space(agent_id) for agent_id in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Space of what `agent` is shown; the same object each time."""
        space: spaces.Space[Any] = self.env.observation_space(agent)
        return space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Space of what `agent` may say; the same object each time."""
        space: spaces.Space[Any] = self.env.action_space(agent)
        return space

    @property
    def active_agents(self) -> list[str]:
        """The agents that are to act in the next `step`; none after the end.

        Raises:
            MasEnvsError: If the environment's `simultaneous` leaves out the agent it has selected.
        """
        if not self.agents:
            return []
        selected = self.env.agent_selection
        together = [selected, *(getattr(self.env, "simultaneous", None) or ())]
        if len(together) > 1 and selected not in together[1:]:
            raise MasEnvsError(
                f"{self.env} selected {selected!r}, which is not in its `simultaneous` {together[1:]!r}; mend the "
                "environment: the selected agent always belongs to it"
            )
        return [agent_id for agent_id in self.agents if agent_id in together]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode; observations and infos of all agents."""
        self.env.reset(seed=seed, options=options)
        self._has_reset = True
        self.agents = list(self.env.agents)
        self._drain()
        observations = {agent_id: self.env.observe(agent_id) for agent_id in self.agents}
        return observations, self._marked({agent_id: self.env.infos[agent_id] for agent_id in self.agents})

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Let the active agents act; five empty dictionaries after the end.

        Args:
            actions: Agent id -> action; those of agents that are not active are ignored.

        Returns:
            Observations, rewards of this step, terminations, truncations and infos of the agents alive before it.

        Raises:
            EpisodeOrderError: Before `reset`.
            InvalidActionError: If an active agent has no action; nothing has changed then.
            MasEnvsError: If agents declared simultaneous see each other's words of this step.
        """
        if not self._has_reset:
            raise EpisodeOrderError(f"step() of ParallelView<{self.env}> before reset(); call reset() first")
        if not self.agents:
            return {}, {}, {}, {}, {}
        active = self.active_agents
        if missing := [agent_id for agent_id in active if agent_id not in actions]:
            raise InvalidActionError(
                f"no action for {', '.join(missing)}; it is the turn of {', '.join(active)}: give each an action"
            )
        rewards = self._act({agent_id: actions[agent_id] for agent_id in active})
        alive = list(self.agents)
        observations = {agent_id: self.env.observe(agent_id) for agent_id in alive}
        terminations = {agent_id: self.env.terminations[agent_id] for agent_id in alive}
        truncations = {agent_id: self.env.truncations[agent_id] for agent_id in alive}
        infos = {agent_id: self.env.infos[agent_id] for agent_id in alive}
        self._drain()
        return observations, rewards, terminations, truncations, self._marked(infos)

    def render(self) -> Any:
        """What the environment inside renders."""
        return self.env.render()

    def state(self) -> Any:
        """The state of the environment inside."""
        return self.env.state()

    def close(self) -> None:
        """Close the environment inside."""
        self.env.close()

    def _act(self, actions: dict[str, Any]) -> dict[str, float]:
        """Play the actions in the order in which the environment selects their agents; the rewards of all of them."""
        shown = {agent_id: self.env.observe(agent_id) for agent_id in actions} if len(actions) > 1 else {}
        rewards = dict.fromkeys(self.agents, 0.0)
        while actions:
            agent_id = self.env.agent_selection
            if agent_id not in actions:
                raise MasEnvsError(
                    f"{self.env} selected {agent_id!r} although {', '.join(actions)} were declared simultaneous and "
                    "have not acted; mend its `simultaneous`"
                )
            if shown and not _equal(self.env.observe(agent_id), shown[agent_id]):
                raise MasEnvsError(
                    f"{agent_id} of {self.env} is shown something new within a step it was declared simultaneous in; "
                    "show it after all have spoken, or mend `simultaneous`"
                )
            self.env.step(actions.pop(agent_id))
            for payee, reward in self.env.rewards.items():
                rewards[payee] += reward
            if any(self.env.terminations.values()) or any(self.env.truncations.values()):
                break
        return rewards

    def _drain(self) -> None:
        """Take the dead steps of agents that have ended."""
        while self.env.agents and self._is_over(self.env.agent_selection):
            self.env.step(None)
        self.agents = list(self.env.agents)

    def _is_over(self, agent_id: str) -> bool:
        return bool(self.env.terminations[agent_id] or self.env.truncations[agent_id])

    def _marked(self, infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        active = self.active_agents
        selected = self.env.agent_selection if self.agents else None
        return {
            agent_id: {**info, "is_active": agent_id in active, "active_agent": selected}
            for agent_id, info in infos.items()
        }


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right)
