"""`Review` with one fault each in what it does with texts: leaks, forged tags, hostile actions, growing prompts."""

from collections.abc import Collection, Sequence
from typing import Any

from mas_envs.actions import defuse, strip_thoughts
from mas_envs.conversation import Outcome
from mas_envs.spaces import Message, Observation
from mas_envs.tasks import Task
from tests.mas_envs.checker.broken_state import with_note
from tests.mas_envs.checker.good_envs import TAGS, Review


class AnswerInPrompt(Review):
    def instruction(self, agent_id: str) -> str:
        text = super().instruction(agent_id)
        return f"{text} (The word is {self.task.answer}.)" if agent_id == "critic_0" else text


class AnswerInLaterPrompt(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        hint = f"Hint: {self.task.answer[:-1]}{self.task.answer[-1:]}" if len(self.said) > 3 else "No hint yet"
        return with_note(super().prompt(agent_id), hint)


class MetadataInPrompt(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), f"Details: {dict(self.task.metadata)}")


class ShowsTheBuyersPrice(Review):
    """The scout may know the topic's number, the critic may not, and is told."""

    def hidden_from(self, agent_id: str) -> Collection[str]:
        return {"answer", "thoughts", *({"metadata.topic"} if agent_id == "critic_0" else ())}

    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), f"Topic: {self.task.metadata['topic']}")


class HidesAKeyThatIsNotThere(Review):
    def hidden_from(self, agent_id: str) -> Collection[str]:
        return {"answer", "thoughts", "metadata.topics"}


class ShowsThoughts(Review):
    def shown(self, text: str) -> str:
        return defuse(text, TAGS)


class ShowsNotesToTheCritic(Review):
    def sees(self, viewer: str, author: str) -> bool:
        return True


class ShowsWhatTheScoutWasTold(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        if not self.said:
            return super().prompt(agent_id)
        return with_note(super().prompt(agent_id), self.instruction("scout_0"))


class HidesFromNobodyKnown(Review):
    def hidden_from(self, agent_id: str) -> Collection[str]:
        return {"answer", "scout"}

    def sees(self, viewer: str, author: str) -> bool:
        return True


class RawTexts(Review):
    def shown(self, text: str) -> str:
        return strip_thoughts(text) or ""


class OnePassFilter(Review):
    def shown(self, text: str) -> str:
        shown = defuse(strip_thoughts(text) or "", ("think", "verdict", "review"))
        for tag in ("<note>", "</note>", "<draft>", "</draft>"):
            shown = shown.replace(tag, "")
        return shown


class KeepsChatMarkers(Review):
    def shown(self, text: str) -> str:
        shown = strip_thoughts(text) or ""
        for tag in TAGS:
            shown = shown.replace(f"<{tag}", f"[{tag}").replace(f"</{tag}", f"[/{tag}")
        return shown


class FormatsTwice(Review):
    def prompt(self, agent_id: str) -> Sequence[Message]:
        (message,) = super().prompt(agent_id)
        return ({"role": "user", "content": (message["content"] + "\nTurn {turn}").format(turn=len(self.said))},)


class RawInTheVerdict(Review):
    """The critic's verdict, read from its block, is shown as it is."""

    def prompt(self, agent_id: str) -> Sequence[Message]:
        verdicts = [text.rpartition("<verdict>")[2].rpartition("</verdict>")[0] for _, text in self.said[2::3]]
        return with_note(super().prompt(agent_id), f"Verdicts: {' '.join(verdicts)}")


class CountsTheWordsOfTheSecondRound(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        if len(self.said) > 3:
            self.first_word = text.split()[0]
        return super().receive(agent_id, text)


class NumberInTheVerdict(Review):
    """What stands in the critic's block is taken for a number if it is digits."""

    def receive(self, agent_id: str, text: str) -> Outcome:
        content = text.rpartition("<verdict>")[2].rpartition("</verdict>")[0]
        self.score = int(content) if content.isdigit() else 0
        return super().receive(agent_id, text)


class EmptyTextRaises(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        self.first_word = text.split()[0]
        return super().receive(agent_id, text)


class BasicPlaneOnly(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        text.encode("utf-16-le").decode("ucs-2-le" if False else "utf-16-le")
        if any(ord(char) > 0xFFFF for char in text):
            raise UnicodeEncodeError("ucs2", text, 0, 1, "character outside the basic plane")
        return super().receive(agent_id, text)


class HangsOnLongTexts(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        while len(text) > 50_000:
            text = text.replace("word", "Word")
        return super().receive(agent_id, text)


class KeepsSurrogates(Review):
    raw = ""

    def begin(self, task: Task) -> str:
        self.raw = ""
        return super().begin(task)

    def step(self, action: str | None) -> None:
        super().step(action)
        self.raw = defuse(action or "", TAGS) if action and not action.isascii() else ""

    def observe(self, agent: str) -> Observation:
        observation = super().observe(agent)
        return {"messages": (*observation["messages"], {"role": "user", "content": self.raw[-40:].strip("é✓ ")})}


class AllTextsValid(Review):
    def _pay(self, agent_id: str, outcome: Outcome, valid: bool) -> None:
        super()._pay(agent_id, outcome, outcome.valid)

    def _write_infos(self, success: bool | None) -> None:
        super()._write_infos(success)
        for info in self.infos.values():
            info["valid_action"] = True


class NoneIsSilence(Review):
    def step(self, action: str | None) -> None:
        live = bool(self.agents) and not self.terminations[self.agent_selection]
        super().step("" if action is None and live else action)


class StripsFirst(Review):
    def step(self, action: Any) -> None:
        live = bool(self.agents) and not self.terminations[self.agent_selection]
        super().step(action.replace("", "") if live else action)


class CountsRefusedActions(Review):
    num_steps = 0

    def begin(self, task: Task) -> str:
        self.num_steps = 0
        return super().begin(task)

    def step(self, action: str | None) -> None:
        self.num_steps += 1
        super().step(action)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        return with_note(super().prompt(agent_id), f"step {self.num_steps if self.agents else 'last'}")


class PromptsInsidePrompts(Review):
    def receive(self, agent_id: str, text: str) -> Outcome:
        outcome = super().receive(agent_id, text)
        if agent_id == "author_0":
            shown = "".join(message["content"] for message in self.prompt("author_0"))
            self.said.insert(-1, ("author_0", shown))
            self.said = [*self.said[:-2], (agent_id, self.said[-2][1] + self.said[-1][1])]
        return outcome
