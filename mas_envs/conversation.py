"""`ConversationEnv`: the turn-taking, rewards, infos, limits and rendering that every text environment shares."""

import math
import random
import re
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.actions import mend_text
from mas_envs.argument_checks import check_limits, seeded_generator
from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError, MasEnvsError
from mas_envs.spaces import Message, Observation, UnicodeText, messages_space
from mas_envs.tasks import Task, TaskSet, TaskSource, load_tasks
from mas_envs.turns import Outcome, Skill, Turn, outcome_fault

__all__ = ["ConversationEnv", "Outcome", "Skill", "Turn"]

_AGENT_ID = re.compile(r"[a-z]+_[0-9]+")
_OBSERVATION_CHARS = 10_000_000


class ConversationEnv(AECEnv[str, Observation, str]):
    """A PettingZoo AEC environment in which agents take turns to write text.

    A subclass sets `name` and `roles` and writes `begin`, `prompt` and `receive`; all episode state of its own is made
    in `begin`. Selection, cumulative rewards, dead steps, spaces, infos, seeds, limits and rendering are done here.

    The keys of `infos[agent]` never change: `valid_action` (of the agent's last turn), `reward_terms` (name -> amount
    earned since the agent last acted, the parts of what `last()` returns as reward), `task_id`, `source`, `turn`
    (turns taken so far by all), `error` (what went wrong, or None) and `success` (None until the episode ends).

    Args:
        tasks: Where episodes start from: a task set, a name, a file, or a mapping of a name and its options.
        max_turns: The episode is truncated after this many turns; None leaves it to the rules.
        invalid_penalty: Charged to an agent for each action with a broken format, as reward term `invalid`; >= 0.
        max_action_chars: Longer actions are cut here and count as invalid.
        render_mode: `ansi` (render returns text), `human` (written to the terminal) or None.

    Raises:
        TaskError: If the tasks cannot be loaded.
        BadArgumentError: If an argument is of the wrong type or out of range, or an agent id is malformed.
    """

    name: ClassVar[str] = "conversation_v0"
    """Name and version, `snake_case_v0`; what `str(env)` gives."""
    roles: ClassVar[Mapping[str, int]] = {}
    """Role -> number of agents with that role; `{"solver": 1}` makes `solver_0`."""

    def __init__(
        self,
        tasks: TaskSource,
        *,
        max_turns: int | None = None,
        invalid_penalty: float = 0.0,
        max_action_chars: int = 65_536,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        check_limits(max_turns, invalid_penalty, max_action_chars, render_mode)
        self.metadata = {"name": self.name, "render_modes": ["human", "ansi"], "is_parallelizable": False}
        self.render_mode = render_mode
        self.tasks: TaskSet = load_tasks(tasks)
        self.max_turns = max_turns
        self.invalid_penalty = invalid_penalty
        self.max_action_chars = max_action_chars
        self._role_of = {f"{role}_{index}": role for role, count in self.team_roles().items() for index in range(count)}
        if malformed := [agent_id for agent_id in self._role_of if not _AGENT_ID.fullmatch(agent_id)]:
            raise BadArgumentError(
                f"agent ids {malformed!r} are malformed: a role is lower-case letters only; rename it"
            )
        self.possible_agents = list(self._role_of)
        observation = messages_space(_OBSERVATION_CHARS)
        self.observation_spaces: dict[str, spaces.Space[Any]] = dict.fromkeys(self.possible_agents, observation)
        self.action_spaces: dict[str, spaces.Space[Any]] = {
            agent_id: UnicodeText(max_action_chars) for agent_id in self.possible_agents
        }
        self.agents: list[str] = []
        self.infos: dict[str, dict[str, Any]] = {}
        self._task: Task | None = None
        self._turns: list[Turn] = []
        self._generator: np.random.Generator | None = None

    # What an author writes.

    def team_roles(self) -> Mapping[str, int]:
        """Role -> number of agents; override when the numbers depend on constructor arguments."""
        return self.roles

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Set up the episode's own state for `task`; returns the agent that speaks first."""

    @abstractmethod
    def prompt(self, agent_id: str) -> Sequence[Message]:
        """The messages `agent_id` is shown now; pure, and defined for every agent at every moment of an episode."""

    @abstractmethod
    def receive(self, agent_id: str, text: str) -> Outcome:
        """What it does that `agent_id` says `text`; any string may come."""

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        """What a scripted expert would say as `agent_id` now; used for warm starts, baselines and scripted mates.

        Raises:
            MasEnvsError: If the environment has no expert for that role.
        """
        raise MasEnvsError(
            f"{self.name} has no scripted expert for {agent_id!r}; write `scripted_action` in the environment, "
            "or train without a warm start"
        )

    # What users of the environment see.

    def role_of(self, agent_id: str) -> str:
        """The role of an agent: `solver` for `solver_0`.

        Raises:
            BadArgumentError: If there is no such agent.
        """
        if agent_id not in self._role_of:
            raise BadArgumentError(
                f"no agent {agent_id!r} in {self.name}; agents are {', '.join(self.possible_agents)}"
            )
        return self._role_of[agent_id]

    @property
    def transcript(self) -> list[Turn]:
        """The turns of this episode so far, in order; a new list each time."""
        return list(self._turns)

    @property
    def task(self) -> Task:
        """The task of this episode."""
        if self._task is None:
            raise EpisodeOrderError(f"{self.name} has no task before its first episode; call reset() first")
        return self._task

    @property
    def np_random(self) -> np.random.Generator:
        """The environment's own generator; seeded by `reset(seed=...)`."""
        if self._generator is None:
            self._generator = np.random.default_rng()
        return self._generator

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Space of what `agent` is shown; the same object each time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Space of what `agent` may say; the same object each time."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode.

        Args:
            seed: Seeds the environment's generator; None goes on with the present stream.
            options: `{"task": task_or_index}` chooses the task; otherwise one is drawn.

        Raises:
            TaskError: If the chosen task is neither a `Task` nor an index into the task set.
            BadArgumentError: If the seed is not a whole number >= 0, or the options are not a dict.
        """
        if seed is not None:
            self._generator = seeded_generator(seed)
        self._task = self._choose_task(options or {})
        self._turns = []
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._terms: dict[str, dict[str, float]] = {agent_id: {} for agent_id in self.agents}
        self._valid = dict.fromkeys(self.agents, True)
        self._errors: dict[str, str | None] = dict.fromkeys(self.agents)
        self.agent_selection = self._known(self.begin(self._task), "begin")
        self._write_infos(success=None)

    def observe(self, agent: str) -> Observation:
        """What `agent` is shown now; pure, for any agent at any moment after `reset`."""
        if self._task is None:
            raise EpisodeOrderError(f"observe() of {self.name} before reset(); call reset() first")
        return {"messages": tuple(self.prompt(agent))}

    def last(self, observe: bool = True) -> tuple[Observation | None, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last turn, terminated, truncated and info of the selected agent."""
        if not self.agents:
            raise self._not_running("last")
        agent_id = self.agent_selection
        return (
            self.observe(agent_id) if observe else None,
            self._cumulative_rewards[agent_id],
            self.terminations[agent_id],
            self.truncations[agent_id],
            self.infos[agent_id],
        )

    def step(self, action: str | None) -> None:
        """Take the selected agent's turn; `None` for an agent that has ended.

        Raises:
            EpisodeOrderError: Before `reset` or after the end of the episode.
            InvalidActionError: If the action is not a string; nothing has changed then.
        """
        if not self.agents:
            raise self._not_running("step")
        agent_id = self.agent_selection
        if self.terminations[agent_id] or self.truncations[agent_id]:
            if action is not None:
                raise InvalidActionError(
                    f"action {action!r:.80} for {agent_id}, which has ended; the only action it can take is None"
                )
            self._leave(agent_id)
            return
        if not isinstance(action, str):
            raise InvalidActionError(
                f"action {action!r:.80} of type {type(action).__name__} for {agent_id}; expected the completion as a "
                "str; decode token ids before you call step()"
            )
        text, fault = mend_text(action, self.max_action_chars)
        outcome = self._checked(self.receive(agent_id, text))
        valid = outcome.valid and fault is None
        self._turns.append(Turn(agent_id, text, valid, fault or outcome.reason))
        self._pay(agent_id, outcome, valid)
        self._valid[agent_id] = valid
        self._errors = dict.fromkeys(self.agents, outcome.error)
        if fault and outcome.error is None:
            self._errors[agent_id] = fault
        self._go_on(outcome)
        if self.render_mode == "human":
            self.render()

    def render(self) -> str | None:
        """The last turn as text, empty before the first; returned (`ansi`) or written to the terminal (`human`)."""
        if self.render_mode is None:
            return None
        if not self._turns:
            return "" if self.render_mode == "ansi" else None
        turn = self._turns[-1]
        line = f"[{len(self._turns)}] {turn.agent_id}{'' if turn.valid else ' (invalid)'}: {turn.text}\n"
        if self.render_mode == "ansi":
            return line
        sys.stdout.write(line)
        return None

    def close(self) -> None:
        """Nothing to free; may be called any number of times."""

    # Book-keeping.

    def _choose_task(self, options: dict[str, Any]) -> Task:
        if not isinstance(options, Mapping):
            raise BadArgumentError(f"options={options!r:.80}: expected a dict such as {{'task': 3}}, or None")
        choice = options.get("task")
        if choice is None:
            return self.tasks[int(self.np_random.integers(len(self.tasks)))]
        return choice if isinstance(choice, Task) else self.tasks.at(choice)

    def _not_running(self, call: str) -> EpisodeOrderError:
        if self._task is None:
            return EpisodeOrderError(f"{call}() of {self.name} before reset(); call reset() first")
        return EpisodeOrderError(f"{call}() of {self.name} after the end of the episode; call reset() to start anew")

    def _checked(self, outcome: Outcome) -> Outcome:
        """What an author's `receive` returned, which may be anything; nothing has been booked yet."""
        if type(outcome) is Outcome and (outcome.success is None or type(outcome.success) is bool):
            rewards = outcome.rewards  # the usual case, quickly: this runs in every step
            if not rewards or (type(rewards) is dict and set(map(type, rewards.values())) == {dict}):
                return outcome
        if fault := outcome_fault(outcome, self.possible_agents[-1]):
            raise MasEnvsError(f"receive of {self.name} {fault}: mend the environment")
        return outcome

    def _pay(self, agent_id: str, outcome: Outcome, valid: bool) -> None:
        """Book the rewards of one turn: into `rewards` for this step, and on top of what `last()` will report."""
        self._terms[agent_id] = {}
        self._cumulative_rewards[agent_id] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        earned: Mapping[str, Mapping[str, float]] = outcome.rewards
        if not valid and self.invalid_penalty:
            own = dict(earned.get(agent_id, {}))
            own["invalid"] = own.get("invalid", 0.0) - self.invalid_penalty
            earned = {**earned, agent_id: own}
        for payee, terms in earned.items():
            try:
                amount = float(sum(terms.values()))
            except (TypeError, ValueError):
                amount = math.nan
            if not math.isfinite(amount):
                raise MasEnvsError(
                    f"receive of {self.name} paid {payee} {dict(terms)!r} at turn {len(self._turns)}; expected finite "
                    "rewards: mend the environment or its reward function"
                )
            self.rewards[self._known(payee, "the rewards of receive")] = amount
            self._cumulative_rewards[payee] += amount
            account = self._terms[payee]
            for term, part in terms.items():
                account[term] = account.get(term, 0.0) + float(part)

    def _go_on(self, outcome: Outcome) -> None:
        """Select the next agent, or end the episode for everyone."""
        cut = outcome.truncated or (
            outcome.next_agent is not None and self.max_turns is not None and len(self._turns) >= self.max_turns
        )
        if outcome.next_agent is not None and not cut:
            self.agent_selection = self._known(outcome.next_agent, "receive")
            self._write_infos(success=None)
            return
        self.truncations = dict.fromkeys(self.agents, cut)
        self.terminations = dict.fromkeys(self.agents, not cut)
        self._write_infos(success=None if outcome.success is None else bool(outcome.success))
        self.agent_selection = self.agents[0]

    def _leave(self, agent_id: str) -> None:
        """Remove an agent that has ended, and select the next; all end together, so none is left alive."""
        self.agents.remove(agent_id)
        for table in (self.terminations, self.truncations, self._cumulative_rewards, self.infos):
            del table[agent_id]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self.agents:
            self.agent_selection = self.agents[0]

    def _write_infos(self, success: bool | None) -> None:
        task, turn = self.task, len(self._turns)
        self.infos = {
            agent_id: {
                "valid_action": self._valid[agent_id],
                "reward_terms": self._terms[agent_id].copy(),
                "task_id": task.id,
                "source": task.source,
                "turn": turn,
                "error": self._errors[agent_id],
                "success": success,
            }
            for agent_id in self.agents
        }

    def _known(self, agent_id: str, where: str) -> str:
        if agent_id not in self._role_of:
            raise MasEnvsError(
                f"{where} of {self.name} named the agent {agent_id!r}; its agents are "
                f"{', '.join(self.possible_agents)}: mend the environment"
            )
        return agent_id
