"""`debate/Debate-v0`: two debaters defend opposed answers, a judge decides."""

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mas_envs import ConversationEnv, Outcome, Skill, Task
from mas_envs.actions import defuse, parse_verdict
from mas_envs.spaces import Message
from mas_envs.tasks import TaskSource

__all__ = ["DebateEnv"]

_TAGS = ("verdict", "debater_0", "debater_1")


class DebateEnv(ConversationEnv):
    """Each debater defends one answer for `num_rounds` rounds; the judge writes `<verdict>0</verdict>` or 1.

    The rewards differ: the judge is paid 1 for the side with the right answer, the debaters play for the judge's
    verdict, +1 against -1. Which side has the right answer is drawn anew in each episode.

    Args:
        tasks: Tasks whose metadata has a wrong answer under `rival`.
        num_rounds: Times that each debater speaks.
        invalid_penalty: Charged to the judge for an unreadable verdict.
        max_turns: The episode is truncated after this many turns.
        render_mode: `ansi`, `human` or None.
    """

    name: ClassVar[str] = "debate_v0"
    roles: ClassVar[Mapping[str, int]] = {"debater": 2, "judge": 1}

    def __init__(
        self,
        *,
        tasks: TaskSource = "debate_claims",
        num_rounds: int = 1,
        invalid_penalty: float = 0.1,
        max_turns: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, invalid_penalty=invalid_penalty, max_turns=max_turns, render_mode=render_mode)
        self.num_rounds = num_rounds
        self.right_side = 0
        self.said: list[tuple[str, str]] = []

    def hidden_from(self, agent_id: str) -> set[str]:
        """Nothing: both answers are on the table, and which is right is told to nobody."""
        return set()

    def begin(self, task: Task) -> str:
        """The sides are drawn, and the first debater speaks."""
        self.right_side = int(self.np_random.integers(2))
        self.said = []
        return "debater_0"

    def prompt(self, agent_id: str) -> Sequence[Message]:
        """The question and the debate so far; a debater is told its side, the judge both, not which is right."""
        debate = "".join(f"\n<{speaker}>{defuse(text, _TAGS)}</{speaker}>" for speaker, text in self.said)
        if agent_id == "judge_0":
            text = f"Judge {self.task.question}: 0 says {self.claim(0)}, 1 says {self.claim(1)}{debate}"
        else:
            text = f"Defend {self.task.question}={self.claim(int(agent_id[-1]))}{debate}"
        return ({"role": "user", "content": text},)

    def receive(self, agent_id: str, text: str) -> Outcome:
        """Debaters take turns, then the judge's verdict ends the episode."""
        if agent_id != "judge_0":
            self.said.append((agent_id, text))
            if len(self.said) == 2 * self.num_rounds:
                return Outcome("judge_0")
            return Outcome("debater_1" if agent_id == "debater_0" else "debater_0")
        verdict = parse_verdict(text, "verdict", ("0", "1"))
        if verdict.content is None:
            return Outcome(None, valid=False, reason=verdict.reason, success=False)
        side = int(verdict.content)
        success = side == self.right_side
        rewards = {f"debater_{side}": {"won": 1.0}, f"debater_{1 - side}": {"won": -1.0}}
        rewards["judge_0"] = {"right_side": float(success)}
        return Outcome(None, rewards=rewards, valid=verdict.valid, reason=verdict.reason, success=success)

    def claim(self, side: int) -> str:
        """The answer that a side defends."""
        return str(self.task.answer) if side == self.right_side else str(self.task.metadata.get("rival", "?"))

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        """The expert judge knows the answer; the expert debaters state theirs."""
        skill = skill or Skill()
        if agent_id != "judge_0":
            return f"{self.task.question}={self.claim(int(agent_id[-1]))}"
        side = self.right_side if rng.random() < skill.accuracy else 1 - self.right_side
        return f"{side}" if rng.random() < skill.malformed else f"<verdict>{side}</verdict>"
