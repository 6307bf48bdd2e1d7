"""Small environments that keep the contract; the broken ones differ from `Review` in one fault each."""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pettingzoo import AECEnv

from mas_envs.actions import defuse, parse_verdict, strip_thoughts
from mas_envs.conversation import ConversationEnv, Outcome, Skill, Turn
from mas_envs.spaces import Message, Observation, UnicodeText, messages_space
from mas_envs.tasks import Task, TaskSet

TASKS = TaskSet(
    [Task(f"t{n}", f"Write a line about number {n}", f"word{n}", "lines", {"topic": n}) for n in range(6)], name="lines"
)
TAGS = ("note", "draft", "review", "verdict", "think")


class Review(ConversationEnv):
    """A scout notes what only the author sees, the author drafts, the critic accepts or rejects."""

    name: ClassVar[str] = "review_v0"
    roles: ClassVar[Mapping[str, int]] = {"scout": 1, "author": 1, "critic": 1}

    def __init__(
        self,
        *,
        tasks: TaskSet = TASKS,
        num_rounds: int = 5,
        max_turns: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, max_turns=max_turns, invalid_penalty=0.5, render_mode=render_mode)
        self.num_rounds = num_rounds
        self.said: list[tuple[str, str]] = []

    def begin(self, task: Task) -> str:
        self.said = []
        return "scout_0"

    def hidden_from(self, agent_id: str) -> Collection[str]:
        return {"answer", "thoughts", "scout_0"} if agent_id == "critic_0" else {"answer", "thoughts"}

    def shown(self, text: str) -> str:
        return defuse(strip_thoughts(text) or "", TAGS)

    def instruction(self, agent_id: str) -> str:
        return {
            "scout": "Make notes for the author about the question, in a few words.",
            "author": "Write the line that the question asks for, with the help of the notes.",
            "critic": "Judge the latest draft. End with <verdict>accept</verdict> or <verdict>reject</verdict>.",
        }[self.role_of(agent_id)]

    def sees(self, viewer: str, author: str) -> bool:
        return author not in self.hidden_from(viewer)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        tags = {"scout_0": "note", "author_0": "draft", "critic_0": "review"}
        lines = [
            f"<{tags[author]}>{self.shown(text)}</{tags[author]}>"
            for author, text in self.said
            if self.sees(agent_id, author)
        ]
        text = "\n".join([self.instruction(agent_id), f"Question: {self.task.question}", *lines])
        return ({"role": "user", "content": text},)

    def receive(self, agent_id: str, text: str) -> Outcome:
        self.said.append((agent_id, text))
        if agent_id == "scout_0":
            return Outcome("author_0", rewards={"critic_0": {"patience": 0.25}})
        if agent_id == "author_0":
            return Outcome("critic_0")
        verdict = parse_verdict(text, "verdict", ("accept", "reject"))
        if verdict.content != "accept" and len(self.said) < 3 * self.num_rounds:
            return Outcome("scout_0", valid=verdict.valid, reason=verdict.reason)
        success = str(self.task.answer) in self.said[-2][1]
        pay = {agent: {"solved": int(success), "rounds": 0.1} for agent in self.possible_agents}
        return Outcome(None, rewards=pay, valid=verdict.valid, reason=verdict.reason, success=success)

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        knows = rng.random() < (skill or Skill()).accuracy
        if agent_id == "critic_0":
            return f"<verdict>{'accept' if knows else 'reject'}</verdict>"
        return f"a line with {self.task.answer if knows else 'nothing'}"


class OneTask(Review):
    """With one task, seeds cannot differ."""

    def __init__(self) -> None:
        super().__init__(tasks=TASKS[:1])


class TurnLimited(Review):
    """It never ends by its own rules within the limit that it declares."""

    def __init__(self) -> None:
        super().__init__(num_rounds=10_000, max_turns=30)


class Soliloquy(ConversationEnv):
    """One agent, no expert, no end but the limit, and nothing declared hidden."""

    name: ClassVar[str] = "soliloquy_v0"
    roles: ClassVar[Mapping[str, int]] = {"speaker": 1}

    def __init__(self) -> None:
        super().__init__(TASKS, max_turns=7)

    def begin(self, task: Task) -> str:
        return "speaker_0"

    def prompt(self, agent_id: str) -> Sequence[Message]:
        past: list[Message] = [{"role": "assistant", "content": turn.text} for turn in self.transcript]
        return ({"role": "user", "content": self.task.question}, *past)

    def receive(self, agent_id: str, text: str) -> Outcome:
        return Outcome("speaker_0", rewards={"speaker_0": {"length": min(len(text), 9)}}, success=len(text) > 3)


class OneByOne(AECEnv[str, Observation, str]):
    """No ConversationEnv: agents speak in order, and each leaves after its second word; the first to leave wins."""

    metadata: ClassVar[dict[str, Any]] = {"name": "one_by_one_v0", "render_modes": [], "is_parallelizable": False}

    def __init__(self) -> None:
        self.possible_agents = ["guest_0", "guest_1", "guest_2"]
        self.agents: list[str] = []
        self._turns: list[Turn] = []
        self._actions = {agent_id: UnicodeText(1000) for agent_id in self.possible_agents}
        self._observations = {agent_id: messages_space(10_000_000) for agent_id in self.possible_agents}
        self._generator = np.random.default_rng()

    @property
    def transcript(self) -> list[Turn]:
        return list(self._turns)

    def observation_space(self, agent: str) -> Any:
        return self._observations[agent]

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self.number = int(self._generator.integers(100))
        self._turns = []
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection = None
        self.agent_selection = self.agents[0]
        self._terms: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self._write_infos(dict.fromkeys(self.agents, True))

    def observe(self, agent: str) -> Observation:
        if not hasattr(self, "number"):
            raise RuntimeError("observe() before reset()")
        return {"messages": ({"role": "user", "content": f"{self.number} after {len(self.transcript)} words"},)}

    def last(self, observe: bool = True) -> Any:
        if not self.agents:
            raise RuntimeError("nobody is there: call reset()")
        return super().last(observe)

    def step(self, action: str | None) -> None:
        if not self.agents:
            raise RuntimeError("nobody is there: call reset()")
        agent_id = self.agent_selection
        if self.terminations[agent_id]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise TypeError(f"action {action!r} is no text")
        text = action[:1000].encode("utf-8", "replace").decode()
        self._turns.append(Turn(agent_id, text, text == action))
        self._cumulative_rewards[agent_id] = 0
        self._terms[agent_id] = 0.0
        self._clear_rewards()
        said = [turn.agent_id for turn in self.transcript].count(agent_id)
        self.terminations[agent_id] = said == 2
        if said == 2 and sum(self.terminations.values()) == 1:
            self.rewards = {other: 1 if other == agent_id else -1 for other in self.agents}
        self._accumulate_rewards()
        for other in self.agents:
            self._terms[other] += self.rewards[other]
        alive = [other for other in self.possible_agents if not self.terminations.get(other, True)]
        order = self.possible_agents.index(agent_id)
        self.agent_selection = min(
            alive, key=lambda other: (self.possible_agents.index(other) - order - 1) % 3, default=agent_id
        )
        self._write_infos({turn.agent_id: turn.valid for turn in self.transcript})
        self._deads_step_first()

    def close(self) -> None:
        """Nothing is open."""

    def render(self) -> None:
        """Nothing to see."""

    def _write_infos(self, valid: dict[str, bool]) -> None:
        over = all(self.terminations.values())
        self.infos = {
            agent_id: {
                "valid_action": valid.get(agent_id, True),
                "reward_terms": {"order": self._terms[agent_id]},
                "task_id": str(self.number),
                "source": "",
                "turn": len(self.transcript),
                "error": None,
                "success": True if over else None,
            }
            for agent_id in self.agents
        }


GOOD = (Review, OneTask, TurnLimited, Soliloquy, OneByOne)
