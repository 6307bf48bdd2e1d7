"""`Review` with one fault each in its books: agents, spaces, infos, rewards, endings, transcripts, calls."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.conversation import Outcome, Skill, Turn
from mas_envs.spaces import Message, UnicodeText
from mas_envs.tasks import Task
from tests.mas_envs.checker.good_envs import Review


class RaisesInPlay(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        return super().receive({"author_0": "autor_0"}[agent_id] if self.said else agent_id, text)


class NeverReturns(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        while agent_id == "critic_0":
            random.Random(0).random()
        return super().receive(agent_id, text)


class NumberedFromOne(Review):
    def __init__(self) -> None:
        super().__init__()
        self._role_of = {"scout_0": "scout", "author_0": "author", "critic_0": "critic", "critic_2": "critic"}
        self.possible_agents = list(self._role_of)
        self.observation_spaces["critic_2"] = self.observation_spaces["critic_0"]
        self.action_spaces["critic_2"] = UnicodeText(65_536)


class SummaryKey(Review):
    def _write_infos(self, success: bool | None) -> None:
        super()._write_infos(success)
        self.infos["__all__"] = {}


class SharedAgentList(Review):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.agents = self.possible_agents


class NewSpaceEachCall(Review):
    def action_space(self, agent: str) -> spaces.Space[Any]:
        return UnicodeText(self.max_action_chars)


class ListOfMessages(Review):
    def observe(self, agent: str) -> Any:
        return {"messages": list(super().observe(agent)["messages"])}


class OnlyActingAgentContained(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        if agent_id != self.agent_selection:
            return ({"role": "", "content": "not your turn"},)
        return super().prompt(agent_id)


class AloofText(UnicodeText):
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None


class SpaceUnequalToItsCopy(Review):
    def __init__(self) -> None:
        super().__init__()
        self.action_spaces = {agent_id: AloofText(65_536) for agent_id in self.possible_agents}


class LateKey(Review):
    def _write_infos(self, success: bool | None) -> None:
        super()._write_infos(success)
        for info in self.infos.values() if self._turns else ():
            info["verdict"] = None


class NoSuccessKey(Review):
    def _write_infos(self, success: bool | None) -> None:
        super()._write_infos(success)
        for info in self.infos.values():
            del info["success"]


class TurnAsText(Review):
    def _write_infos(self, success: bool | None) -> None:
        super()._write_infos(success)
        for info in self.infos.values():
            info["turn"] = str(info["turn"])


class SuccessTooEarly(Review):
    def _write_infos(self, success: bool | None) -> None:
        super()._write_infos(bool(success))


class CountedTwice(Review):
    def step(self, action: str | None) -> None:
        is_live = bool(self.agents) and not self.terminations[self.agent_selection]
        super().step(action)
        if is_live:
            self._accumulate_rewards()


class ForgetsWaitingAgents(Review):
    def _pay(self, agent_id: str, outcome: Outcome, valid: bool) -> None:
        super()._pay(agent_id, outcome, valid)
        for other in self.agents:
            if other != agent_id:
                self._cumulative_rewards[other] = self.rewards[other]
                self._terms[other] = dict(outcome.rewards.get(other, {}))


class NamelessReward(Review):
    def _pay(self, agent_id: str, outcome: Outcome, valid: bool) -> None:
        super()._pay(agent_id, outcome, valid)
        self._terms = {other: {} for other in self._terms}


class NotANumber(Review):
    def _pay(self, agent_id: str, outcome: Outcome, valid: bool) -> None:
        super()._pay(agent_id, outcome, valid)
        if outcome.next_agent is None:
            self.rewards = dict.fromkeys(self.rewards, float("nan"))
            self._accumulate_rewards()


class PaysOnlyWhoActs(Review):
    def _pay(self, agent_id: str, outcome: Outcome, valid: bool) -> None:
        own: Mapping[str, Mapping[str, float]] = {agent_id: outcome.rewards.get(agent_id, {})}
        super()._pay(agent_id, replace(outcome, rewards=own), valid)


class Endless(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        outcome = super().receive(agent_id, text)
        self.said = self.said[-9:]
        return outcome if outcome.next_agent else Outcome("scout_0")


class IgnoresItsLimit(Review):
    def __init__(self) -> None:
        super().__init__(max_turns=6)

    def _go_on(self, outcome: Outcome) -> None:
        declared, self.max_turns = self.max_turns, None
        super()._go_on(outcome)
        self.max_turns = declared


class TerminatesAtTheLimit(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        outcome = super().receive(agent_id, text)
        is_last = self.max_turns is not None and len(self._turns) + 1 >= self.max_turns
        return replace(outcome, next_agent=None) if is_last else outcome


class NoDeadSteps(Review):
    def _go_on(self, outcome: Outcome) -> None:
        super()._go_on(outcome)
        if outcome.next_agent is None:
            while self.agents:
                self._leave(self.agents[0])


class NeverLeaves(Review):
    def _leave(self, agent_id: str) -> None:
        self.agent_selection = self.agents[(self.agents.index(agent_id) + 1) % len(self.agents)]


class ObscureBeforeReset(Review):
    def last(self, observe: bool = True) -> Any:
        return AECEnv.last(self, observe)


class RevivesAfterTheEnd(Review):
    def step(self, action: str | None) -> None:
        if self._task is not None and not self.agents:
            self.reset()
        super().step(action)


class ClosesOnce(Review):
    handle: list[int] | None = None

    def close(self) -> None:
        self.handle = [0] if self.handle is None else self.handle
        self.handle.pop()


class NeverSaysSuccess(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        return replace(super().receive(agent_id, text), success=None)


class ForgetsInvalidTurns(Review):
    @property
    def transcript(self) -> list[Turn]:
        return [turn for turn in self._turns if turn.valid]


@dataclass(frozen=True)
class TaggedTurn(Turn):
    tags: tuple[str, ...] = ("spoken",)


class TupleInTranscript(Review):
    @property
    def transcript(self) -> list[Turn]:
        return [TaggedTurn(turn.agent_id, turn.text, turn.valid, turn.reason) for turn in self._turns]


class IgnoresTheChosenTask(Review):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed)


class NoIndexOfATask(Review):
    def begin(self, task: Task) -> str:
        self._task = self.tasks[0] if task == self.tasks[len(self.tasks) - 1] else task
        return super().begin(task)


class StepReturns(Review):
    def step(self, action: str | None) -> Any:
        super().step(action)
        return self.observe("scout_0")


class NoFirstPicture(Review):
    def render(self) -> str | None:
        return super().render() or None


class ExpertWithItsOwnDice(Review):
    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        return super().scripted_action(agent_id, random.Random(), Skill(0.5))


class ExpertThatActs(Review):
    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        self.said.append((agent_id, "thinking"))
        return super().scripted_action(agent_id, rng, skill)


class ExpertThatTrips(Review):
    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        if agent_id == "critic_0":
            return "accept"[[text for _, text in self.said].index("a perfect draft")]
        return super().scripted_action(agent_id, rng, skill)


class PaysByHand(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        self.rewards[agent_id] += 0.5
        return super().receive(agent_id, text)


class EndsByHand(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        if len(self.said) > 4:
            self.truncations[agent_id] = True
        return super().receive(agent_id, text)
