"""A text environment of somebody else that follows a script, so that agents can end in any order and manner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.spaces import UnicodeText, messages_space


@dataclass(frozen=True)
class Beat:
    """One turn of the script: who speaks, who is paid for it, who ends with it."""

    agent_id: str
    pays: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, Literal["terminated", "truncated"]] = field(default_factory=dict)


def all_end(how: Literal["terminated", "truncated"] = "terminated") -> dict[str, Literal["terminated", "truncated"]]:
    return {"a_0": how, "b_0": how}


class Relay(AECEnv[str, Any, Any]):
    """`a_0` and `b_0` speak as the script says; agents that have ended leave at once, or with `linger` at the end."""

    def __init__(
        self, script: Sequence[Beat], *, first_pays: Mapping[str, float] | None = None, linger: bool = False
    ) -> None:
        super().__init__()
        self.metadata = {"name": "relay_v0", "render_modes": []}
        self.render_mode = None
        self.possible_agents = ["a_0", "b_0"]
        self._shown, self._said = messages_space(1000), UnicodeText(100)
        self._script = script
        self._first_pays = first_pays or {}
        self._linger = linger

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._shown

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._said

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.rewards = {agent_id: self._first_pays.get(agent_id, 0.0) for agent_id in self.agents}
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent_id: {} for agent_id in self.agents}
        self._beat = 0
        self.agent_selection = self._script[0].agent_id
        self._skip_agent_selection = None

    def observe(self, agent: str) -> dict[str, Any]:
        return {"messages": ({"role": "user", "content": f"{agent} at beat {self._beat}"},)}

    def step(self, action: str | None) -> None:
        agent_id = self.agent_selection
        if self.terminations[agent_id] or self.truncations[agent_id]:
            self._was_dead_step(action)
            return
        beat = self._script[self._beat]
        assert (beat.agent_id, isinstance(action, str)) == (agent_id, True)
        self._beat += 1
        self._cumulative_rewards[agent_id] = 0.0
        self.rewards = {other: beat.pays.get(other, 0.0) for other in self.agents}
        self._accumulate_rewards()
        for other, how in beat.ends.items():
            (self.terminations if how == "terminated" else self.truncations)[other] = True
        ended = {other: self.terminations[other] or self.truncations[other] for other in self.agents}
        if self._beat < len(self._script):
            self.agent_selection = self._script[self._beat].agent_id
        if all(ended.values()):
            self.agent_selection = self.agents[0]
        elif not self._linger:
            self._deads_step_first()

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass
