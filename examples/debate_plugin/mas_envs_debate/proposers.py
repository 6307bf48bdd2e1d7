"""`debate/Proposers-v0`: several solvers propose without seeing each other, an aggregator decides."""

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mas_envs import ConversationEnv, Outcome, Skill, Task
from mas_envs.actions import defuse, parse_boxed
from mas_envs.spaces import Message
from mas_envs.tasks import TaskSource

__all__ = ["ProposersEnv"]


class ProposersEnv(ConversationEnv):
    r"""`num_solvers` solvers answer in `\boxed{}`, then the aggregator, who sees all proposals, answers.

    Each solver is paid for its own answer, the aggregator for the last one.

    Args:
        tasks: Tasks with short answers.
        num_solvers: Number of solvers: `solver_0`, `solver_1`, ...
        invalid_penalty: Charged for an answer without a box.
        max_turns: The episode is truncated after this many turns.
        render_mode: `ansi`, `human` or None.
    """

    name: ClassVar[str] = "proposers_v0"

    def __init__(
        self,
        *,
        tasks: TaskSource = "debate_claims",
        num_solvers: int = 4,
        invalid_penalty: float = 0.1,
        max_turns: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.num_solvers = num_solvers
        super().__init__(tasks, invalid_penalty=invalid_penalty, max_turns=max_turns, render_mode=render_mode)
        self.proposals: list[str | None] = []

    def team_roles(self) -> Mapping[str, int]:
        """As many solvers as asked for, and one aggregator."""
        return {"solver": self.num_solvers, "aggregator": 1}

    def hidden_from(self, agent_id: str) -> set[str]:
        """Solvers see nothing of each other; nobody sees the answer."""
        others = {f"solver_{index}" for index in range(self.num_solvers)} - {agent_id}
        return {"answer"} | (others if self.role_of(agent_id) == "solver" else set())

    @property
    def simultaneous(self) -> list[str]:
        """The solvers that have not spoken yet may all speak in one step."""
        waiting = [f"solver_{index}" for index in range(len(self.proposals), self.num_solvers)]
        return waiting or ["aggregator_0"]

    def begin(self, task: Task) -> str:
        """The first solver speaks."""
        self.proposals = []
        return "solver_0"

    def prompt(self, agent_id: str) -> Sequence[Message]:
        """The question; for the aggregator the proposals too."""
        text = f"Solve {self.task.question}"
        if agent_id == "aggregator_0":
            shown = ", ".join("?" if proposal is None else defuse(proposal) for proposal in self.proposals)
            text = f"Decide {self.task.question}: {shown}"
        return ({"role": "user", "content": text},)

    def receive(self, agent_id: str, text: str) -> Outcome:
        """A proposal is paid at once; the aggregator's answer ends the episode."""
        parsed = parse_boxed(text)
        is_right = parsed.content is not None and parsed.content.strip() == self.task.answer
        rewards = {agent_id: {"correct": float(is_right)}}
        if agent_id == "aggregator_0":
            return Outcome(None, rewards=rewards, valid=parsed.valid, reason=parsed.reason, success=is_right)
        self.proposals.append(parsed.content)
        done = len(self.proposals) == self.num_solvers
        following = "aggregator_0" if done else f"solver_{len(self.proposals)}"
        return Outcome(following, rewards=rewards, valid=parsed.valid, reason=parsed.reason)

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        """Experts know the answer."""
        skill = skill or Skill()
        stated = str(self.task.answer) if rng.random() < skill.accuracy else str(rng.randrange(20))
        return stated if rng.random() < skill.malformed else f"\\boxed{{{stated}}}"
