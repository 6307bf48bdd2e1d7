"""`Review` with one fault each in what it remembers: seeds, copies, other instances, threads, processes, looks."""

import copy
import random
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle

from mas_envs.conversation import Outcome, Turn
from mas_envs.spaces import Message, UnicodeText
from mas_envs.tasks import Task
from tests.mas_envs.checker.good_envs import TASKS, Review


def with_note(messages: Sequence[Message], note: object) -> tuple[Message, ...]:
    return (*messages, {"role": "user", "content": str(note)})


class GlobalDice(Review):
    def begin(self, task: Task) -> str:
        self.mood = random.random()
        return super().begin(task)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), self.mood)


class SeedDropped(Review):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(None, options)


class SeedOverwritten(Review):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(None if seed is None else 7, options)


class EpisodesCountedOnTheClass(Review):
    num_episodes: ClassVar[list[int]] = [0]

    def begin(self, task: Task) -> str:
        self.num_episodes[0] += 1
        return super().begin(task)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), f"episode {self.num_episodes[0]}")


class NewStreamEachReset(Review):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._generator = np.random.default_rng(seed)
        super().reset(None, options)


class DefaultSeed(Review):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed or 0, options)


class KeepsTheLastEpisode(Review):
    def begin(self, task: Task) -> str:
        said = self.said
        first = super().begin(task)
        self.said = said
        return first


class CountsLooks(Review):
    num_looks = 0

    def prompt(self, agent_id: str) -> Sequence[Message]:
        self.num_looks += 1
        return with_note(super().prompt(agent_id), f"look {self.num_looks}")


class DrawsWhenLookedAt(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), self.np_random.random())


class LooksDecideTheEnd(Review):
    num_looks = 0

    def prompt(self, agent_id: str) -> Sequence[Message]:
        self.num_looks += 1
        return super().prompt(agent_id)

    def receive(self, agent_id: str, text: str) -> Outcome:
        outcome = super().receive(agent_id, text)
        return Outcome("author_0") if outcome.next_agent == "critic_0" and not self.num_looks else outcome


class GrowingMessage(Review):
    def begin(self, task: Task) -> str:
        self.log: dict[str, Message] = {}
        return super().begin(task)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        message = self.log.setdefault(agent_id, {"role": "user", "content": ""})
        message.update(super().prompt(agent_id)[0])
        return (message,)


class TranscriptHandedOut(Review):
    @property
    def transcript(self) -> list[Turn]:
        return self._turns


class HistoryOnTheClass(Review):
    history: ClassVar[list[str]] = []

    def begin(self, task: Task) -> str:
        self.history.clear()
        return super().begin(task)

    def receive(self, agent_id: str, text: str) -> Outcome:
        self.history.append(agent_id)
        return super().receive(agent_id, text)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), " ".join(self.history))


class MadeAnewWhenCopied(Review, EzPickle):
    def __init__(self) -> None:
        EzPickle.__init__(self)
        Review.__init__(self)


class SharesHistoryWithCopies(Review):
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.__dict__ = {
            name: value if name == "said" else copy.deepcopy(value, memo) for name, value in vars(self).items()
        }
        return twin


class ScratchOnTheClass(Review):
    scratch: ClassVar[dict[str, str]] = {}

    def receive(self, agent_id: str, text: str) -> Outcome:
        self.scratch["text"] = text
        time.sleep(0.001)
        return super().receive(agent_id, self.scratch["text"])


class SetInPrompt(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        topics = {"rhyme", "metre", "tone", "length", "grammar", "wit", self.task.question}
        return with_note(super().prompt(agent_id), f"Mind {', '.join(topics)}.")


class CharacterSet(Review):
    def __init__(self) -> None:
        super().__init__()
        charset = set("abcdefghijklmnopqrstuvwxyz")
        self.action_spaces = {
            agent_id: UnicodeTextOf(charset) if agent_id == "scout_0" else UnicodeText(65_536)
            for agent_id in self.possible_agents
        }


class UnicodeTextOf(UnicodeText):
    """Takes any text, and samples from a set of characters."""

    def __init__(self, charset: set[str]) -> None:
        spaces.Text.__init__(self, 65_536, min_length=0, charset=frozenset(charset))
        self.sample_length = 8


class UnseededText(UnicodeText):
    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return f"word {random.random()}"


class SamplesFromElsewhere(Review):
    def __init__(self) -> None:
        super().__init__(tasks=TASKS)
        self.action_spaces = {agent_id: UnseededText(65_536) for agent_id in self.possible_agents}


class SeedsTheGlobalGenerator(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        random.seed(len(text))
        return super().receive(agent_id, text)


class SeedsNumpy(Review):
    def begin(self, task: Task) -> str:
        np.random.seed(3)  # the fault itself
        return super().begin(task)
