"""`MathLoop-v0`, the solver-verifier loop on math problems; `MathRefine-v0` and the single-agent `MathSolo-v0`."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

from mas_envs.actions import Parsed, parse_boxed, parse_verdict
from mas_envs.conversation import ConversationEnv, Outcome, Skill, Turn
from mas_envs.errors import BadArgumentError, MasEnvsError
from mas_envs.math_loop.experts import scripted_solution, scripted_verdict
from mas_envs.math_loop.grading import Grade, grade
from mas_envs.math_loop.prompts import STYLES, PromptStyle, Said, prompt_of
from mas_envs.spaces import Message
from mas_envs.tasks import Task, TaskSource

__all__ = ["Grader", "MathLoopEnv", "MathRefineEnv", "MathSoloEnv", "RewardFunction"]

Grader = Callable[[str, str], Grade]
"""From a completion and the ground truth to a grade."""
RewardFunction = Callable[[Task, Sequence[Turn], Grade], Mapping[str, float]]
"""From the task, the transcript and the grade of the last solution to a reward for each agent."""

SOLVER, VERIFIER, REFINER = "solver_0", "verifier_0", "refiner_0"


class MathLoopEnv(ConversationEnv):
    r"""A solver and a verifier take turns until the verifier approves or the solver has had its last word.

    The solver ends with `\boxed{answer}`, the verifier with `<verify>approve</verify>` or `<verify>reject</verify>`.
    An approval ends the episode; the solver's last solution is graded and is never checked by the verifier when all
    loops are used. `success` is the grade; a grader that fails truncates the episode and leaves it None.

    Source: arXiv 2602.08847 and its published code; differs in: actions are parsed by the rules of
    `mas_envs.actions`, and an unreadable verdict rejects (`unknown_verdict="approve"` reads verdicts as published).

    Args:
        tasks: Math problems; the default is the embedded arithmetic.
        max_loops: Most solver turns; the verifier has one less.
        reward: `team` pays 1 for a right final answer to every agent; `role` pays it to who solves, and pays the
            verifier 1 for each verdict that agrees with the grade of the solution it judged; or a function.
        invalid_penalty: Charged for each action with a broken format.
        unknown_verdict: What a verdict that cannot be read means: `reject`, or `approve` as in the published code,
            whose reading is exact and case-sensitive and takes everything but a plain reject block for approval.
        prompt_style: `full` explains everything; `short` shows only what was parsed, for tiny models.
        grader: What grades a completion; None is `mas_envs.math_loop.grading.grade`.
        max_action_chars: Longer actions are cut.
        render_mode: `ansi`, `human` or None.
    """

    name: ClassVar[str] = "math_loop_v0"
    roles: ClassVar[Mapping[str, int]] = {"solver": 1, "verifier": 1}
    solvers: ClassVar[Sequence[str]] = (SOLVER,)
    """Who answers: the first in the first round, the last in all later ones."""

    def __init__(  # noqa: PLR0913  # the settings of an experiment, all keyword-only
        self,
        *,
        tasks: TaskSource = "arithmetic",
        max_loops: int = 2,
        reward: Literal["team", "role"] | RewardFunction = "team",
        invalid_penalty: float = 0.1,
        unknown_verdict: Literal["reject", "approve"] = "reject",
        prompt_style: PromptStyle = "full",
        grader: Grader | None = None,
        max_turns: int | None = None,
        max_action_chars: int = 65_536,
        render_mode: str | None = None,
    ) -> None:
        if not isinstance(max_loops, int) or isinstance(max_loops, bool) or max_loops < 1:
            raise BadArgumentError(f"max_loops={max_loops!r}: expected an integer of at least 1")
        if reward not in ("team", "role") and not callable(reward):
            raise BadArgumentError(f"reward={reward!r}: expected 'team', 'role' or a function")
        if unknown_verdict not in ("reject", "approve"):
            raise BadArgumentError(f"unknown_verdict={unknown_verdict!r}: expected 'reject' or 'approve'")
        if prompt_style not in STYLES:
            raise BadArgumentError(f"prompt_style={prompt_style!r}: expected one of {', '.join(STYLES)}")
        if grader is not None and not callable(grader):
            raise BadArgumentError(f"grader={grader!r}: expected a function (completion, answer) -> Grade, or None")
        super().__init__(
            tasks,
            max_turns=max_turns,
            invalid_penalty=invalid_penalty,
            max_action_chars=max_action_chars,
            render_mode=render_mode,
        )
        self.max_loops = max_loops
        self.reward = reward
        self.unknown_verdict = unknown_verdict
        self.prompt_style: PromptStyle = prompt_style
        self._grade: Grader = grader or grade
        self._said: list[Said] = []

    def begin(self, task: Task) -> str:
        """The solver speaks first."""
        self._said = []
        return SOLVER

    def prompt(self, agent_id: str) -> Sequence[Message]:
        """The problem and everything said so far, in the words of the agent's role."""
        return prompt_of(self.role_of(agent_id), self.task.question, self._said, self.prompt_style)

    def receive(self, agent_id: str, text: str) -> Outcome:
        """A solution goes to the verifier, or to the grader when it is the last; a verdict to the solver."""
        if agent_id in self.solvers:
            parsed = parse_boxed(text)
            self._said.append(Said(agent_id, text, parsed.content))
            loops = sum(said.agent_id in self.solvers for said in self._said)
            return self._final(parsed, {}) if loops >= self.max_loops else _pass_on(VERIFIER, parsed)
        parsed = parse_verdict(text, "verify", ("approve", "reject"))
        self._said.append(Said(agent_id, text, parsed.content))
        verdict_pay, error = self._verdict_pay(parsed)
        if self._approves(parsed, text):
            return self._final(parsed, verdict_pay)
        return _pass_on(self.solvers[-1], parsed, verdict_pay, error)

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        """The expert solver knows the answer; the expert verifier compares with it."""
        skill, answer = skill or Skill(), _answers(self.task)[0]
        if agent_id in self.solvers:
            return scripted_solution(answer, rng, skill, self.prompt_style)
        is_right = self._grade_last_solution().correct
        return scripted_verdict(answer, self._said, is_right, rng, skill, self.prompt_style)

    def _approves(self, parsed: Parsed, text: str) -> bool:
        if self.unknown_verdict == "reject":
            return parsed.content == "approve"
        shown = _first_block_stripped(text)
        return "<verify>approve</verify>" in shown or "<verify>reject</verify>" not in shown

    def _final(self, parsed: Parsed, earned: Mapping[str, Mapping[str, float]]) -> Outcome:
        """Grade the last solution and end the episode."""
        result = self._grade_last_solution()
        failed = result.status == "failed"
        pay = {agent_id: dict(terms) for agent_id, terms in earned.items()}
        for agent_id, amount in () if failed else self._final_pay(result, parsed):
            pay.setdefault(agent_id, {})["custom" if callable(self.reward) else "correct"] = amount
        return Outcome(
            next_agent=None,
            rewards=pay,
            valid=parsed.valid,
            reason=parsed.reason,
            success=None if failed else result.correct,
            truncated=failed,
            error=_grading_error(result),
        )

    def _final_pay(self, result: Grade, parsed: Parsed) -> list[tuple[str, float]]:
        if callable(self.reward):
            last = Turn(self._said[-1].agent_id, self._said[-1].text, parsed.valid, parsed.reason)
            paid = self.reward(self.task, [*self.transcript, last], result)
            if not isinstance(paid, Mapping):
                raise MasEnvsError(
                    f"the reward function of {self.name} returned {paid!r:.80}; expected a mapping from agent ids"
                )
            return list(paid.items())
        payees = self.possible_agents if self.reward == "team" else self.solvers
        return [(agent_id, float(result.correct)) for agent_id in payees]

    def _verdict_pay(self, verdict: Parsed) -> tuple[Mapping[str, Mapping[str, float]], str | None]:
        """What the verdict earns, and what kept the grader from saying so."""
        if self.reward != "role":
            return {}, None
        result = self._grade_last_solution()
        if error := _grading_error(result):
            return {}, error
        agrees = verdict.content == ("approve" if result.correct else "reject")
        return {VERIFIER: {"verdict": float(agrees)}}, None

    def _grade_last_solution(self) -> Grade:
        text = next((said.text for said in reversed(self._said) if said.agent_id in self.solvers), "")
        grades = []
        for answer in _answers(self.task):
            result = self._grade(text, answer)
            if result.correct:
                return result
            grades.append(result)
        return next((result for result in grades if _grading_error(result)), grades[0])


class MathRefineEnv(MathLoopEnv):
    r"""The solver-verifier loop in which a third agent, the refiner, answers after a rejection.

    The refiner is called only when the solver has failed and the verifier has seen it: a rare agent whose rewards lie
    far from the team's, the case in which agent-wise normalisation matters (arXiv 2602.08847, section 4).

    Args: as `MathLoopEnv`.
    """

    name: ClassVar[str] = "math_refine_v0"
    roles: ClassVar[Mapping[str, int]] = {"solver": 1, "verifier": 1, "refiner": 1}
    solvers: ClassVar[Sequence[str]] = (SOLVER, REFINER)


class MathSoloEnv(MathLoopEnv):
    r"""One solver, one turn, the same tasks, rewards and grading: the single-agent baseline of `MathLoop-v0`.

    Args:
        tasks: Math problems; the default is the embedded arithmetic.
        invalid_penalty: Charged for an answer without a `\boxed{}`.
        prompt_style: `full` or `short`.
        grader: What grades a completion; None is `mas_envs.math_loop.grading.grade`.
        max_turns: Has no effect beyond 1: an episode is one turn.
        max_action_chars: Longer actions are cut.
        render_mode: `ansi`, `human` or None.
    """

    name: ClassVar[str] = "math_solo_v0"
    roles: ClassVar[Mapping[str, int]] = {"solver": 1}

    def __init__(
        self,
        *,
        tasks: TaskSource = "arithmetic",
        invalid_penalty: float = 0.1,
        prompt_style: PromptStyle = "full",
        grader: Grader | None = None,
        max_turns: int | None = None,
        max_action_chars: int = 65_536,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            tasks=tasks,
            max_loops=1,
            invalid_penalty=invalid_penalty,
            prompt_style=prompt_style,
            grader=grader,
            max_turns=max_turns,
            max_action_chars=max_action_chars,
            render_mode=render_mode,
        )


def _pass_on(
    agent_id: str, parsed: Parsed, earned: Mapping[str, Mapping[str, float]] | None = None, error: str | None = None
) -> Outcome:
    return Outcome(next_agent=agent_id, rewards=earned or {}, valid=parsed.valid, reason=parsed.reason, error=error)


def _grading_error(result: Grade) -> str | None:
    return f"grading: {result.status}" if result.status in ("failed", "timeout") else None


def _first_block_stripped(text: str) -> str:
    """The text as the published code passes it on: white space inside the first verdict block removed."""
    opening, closing = "<verify>", "</verify>"
    start, end = text.find(opening), text.find(closing)
    if start < 0 or end < 0:
        return text
    return f"{text[:start]}{opening}{text[start + len(opening) : end].strip()}{closing}{text[end + len(closing) :]}"


def _answers(task: Task) -> tuple[str, ...]:
    return (task.answer,) if isinstance(task.answer, str) else task.answer
