"""`SingleAgentView`: one agent is left to act, its mates are played by functions."""

from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv

from mas_envs.errors import BadArgumentError, InvalidActionError
from mas_envs.policies import AgentPolicy, PolicyError, ask
from mas_envs.wrappers.own_books import OwnBooks

__all__ = ["Mate", "SingleAgentView"]

Mate = AgentPolicy
"""From the messages an agent is shown to what it says."""


class SingleAgentView(OwnBooks):
    """An environment with one agent; whenever another is to speak, its mate function speaks for it at once.

    `rewards` holds what the agent earned from its action until its next turn, the mates' turns included; `turn` in its
    infos counts its own turns. The episode ends when the environment inside ends for everyone.

    >>> import mas_envs
    >>> env = mas_envs.make("MathLoop-v0")
    >>> view = SingleAgentView(env, "solver_0", {"verifier_0": lambda messages: "<verify>approve</verify>"})
    >>> view.reset(seed=0)
    >>> view.step("no answer")
    >>> view.possible_agents, view.terminations, len(env.transcript)
    (['solver_0'], {'solver_0': True}, 2)

    Args:
        env: An AEC environment whose observations hold `messages`.
        agent_id: The agent that is left.
        mates: Agent id -> what plays it, for every other agent.

    Raises:
        BadArgumentError: If an agent is unknown, has no mate, or is both left and played.
        PolicyError: From `reset` and `step`, if a mate raises or returns no `str`; the episode is given up then.
    """

    simultaneous: tuple[str, ...] = ()
    """There is one agent."""

    def __init__(self, env: AECEnv[str, Any, Any], agent_id: str, mates: Mapping[str, Mate]) -> None:
        super().__init__(env)
        _check_mates(list(env.possible_agents), agent_id, mates)
        self.possible_agents = [agent_id]
        self.observation_spaces = {agent_id: env.observation_space(agent_id)}
        self.action_spaces = {agent_id: env.action_space(agent_id)}
        self.agent_selection = agent_id
        self._mates = dict(mates)
        self._num_turns = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode, and let the mates speak until it is the agent's turn."""
        self.env.reset(seed=seed, options=options)
        self._has_reset = True
        agent_id = self.agent_selection
        self.agents = [agent_id]
        self._num_turns = 0
        self._note_state()
        self.rewards = {agent_id: float(self.env.rewards.get(agent_id, 0.0))}
        self._cumulative_rewards = {agent_id: float(self.env._cumulative_rewards.get(agent_id, 0.0))}
        early = self._play_mates()
        self.rewards[agent_id] += early
        self._cumulative_rewards[agent_id] += early

    def step(self, action: Any) -> None:
        """Take the agent's turn, then the mates' until it is the agent's turn again or the episode is over.

        Raises:
            EpisodeOrderError: Before `reset` or after the end of the episode.
            InvalidActionError: If the episode is over and the action is not None.
        """
        self._check_running("step")
        agent_id = self.agent_selection
        if self._is_over(agent_id):
            if action is not None:
                raise InvalidActionError(
                    f"action {action!r:.80} for {agent_id}, which has ended; the only action it can take is None"
                )
            self._was_dead_step(action)
            return
        self.env.step(action)
        self._num_turns += 1
        reward = self._earned() + self._play_mates()
        self._book(agent_id, {agent_id: reward})

    def _play_mates(self) -> float:
        """Play until it is the agent's turn or all is over; what the agent earned meanwhile."""
        reward = 0.0
        self._note_state()
        while self.env.agents:
            speaker = self.env.agent_selection
            if self.env.terminations[speaker] or self.env.truncations[speaker]:
                self.env.step(None)
                continue
            if speaker == self.agent_selection:
                break
            self.env.step(self._ask(speaker))
            reward += self._earned()
            self._note_state()
        return reward

    def _ask(self, speaker: str) -> str:
        """What a mate says; a mate that fails ends the episode, or else the next action would be taken for its own."""
        turn_index = self.env.infos.get(speaker, {}).get("turn", self._num_turns)
        try:
            return ask(self._mates[speaker], speaker, self.env.observe(speaker)["messages"], turn_index)
        except PolicyError:
            self.agents = []
            raise

    def _earned(self) -> float:
        return float(self.env.rewards.get(self.agent_selection, 0.0))

    def _note_state(self) -> None:
        """Copy flags and info of the agent for as long as the environment inside has them."""
        agent_id = self.agent_selection
        if agent_id in self.env.agents:
            self.terminations = {agent_id: self.env.terminations[agent_id]}
            self.truncations = {agent_id: self.env.truncations[agent_id]}
            info = self.env.infos[agent_id]
            self.infos = {agent_id: {**info, "turn": self._num_turns} if "turn" in info else info}


def _check_mates(agent_ids: list[str], agent_id: str, mates: Mapping[str, Mate]) -> None:
    if agent_id not in agent_ids:
        raise BadArgumentError(f"agent_id={agent_id!r}: no such agent; agents are {', '.join(agent_ids)}")
    if agent_id in mates:
        raise BadArgumentError(f"mates[{agent_id!r}]: this is the agent that is left to act; take it out of mates")
    if unknown := sorted(set(mates) - set(agent_ids)):
        raise BadArgumentError(f"mates has {', '.join(unknown)}: no such agents; agents are {', '.join(agent_ids)}")
    if missing := [other for other in agent_ids if other != agent_id and other not in mates]:
        raise BadArgumentError(f"mates lacks {', '.join(missing)}; give a function for every agent but {agent_id}")
