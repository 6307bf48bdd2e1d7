"""`play`: one episode with a policy for each agent, and the record of it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pettingzoo import AECEnv

from mas_envs.argument_checks import check_speaks_text, is_whole
from mas_envs.conversation import Skill, Turn
from mas_envs.errors import BadArgumentError
from mas_envs.policies import AgentPolicy, PolicyError, ask, assign_policies
from mas_envs.spaces import Message
from mas_envs.tasks import Task
from mas_envs.wrappers.turn_limit import TurnLimit

__all__ = ["PlayedEpisode", "PlayedTurn", "play"]


@dataclass(frozen=True)
class PlayedTurn:
    """One turn: what the agent was shown, what it said, and what that earned."""

    agent_id: str
    """Who spoke."""
    messages: tuple[Message, ...]
    """What it was shown."""
    text: str
    """What it said, as the environment took it."""
    valid: bool
    """Whether the action had the right form."""
    reason: str | None = None
    """Why it was not valid."""
    reward: float = 0.0
    """What the agent earned from this turn until its next, or the end."""
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    """The parts of `reward` by name; empty where the environment names none."""


@dataclass(frozen=True)
class PlayedEpisode:
    """The record of one episode."""

    transcript: tuple[PlayedTurn, ...]
    """The turns, in order."""
    returns: Mapping[str, float]
    """Agent id -> sum of its rewards, those before its first turn included."""
    reward_terms: Mapping[str, Mapping[str, float]]
    """Agent id -> name of the reward term -> amount over the whole episode."""
    success: bool | None
    """Whether the task was solved; None when nobody can say."""
    truncated: bool
    """Ended by something outside the task's rules: a limit, a failed tool, a failed policy."""
    error: str | None
    """What failed, in words."""
    task: Task | None
    """What the episode started from; None for an environment that has no tasks."""
    seed: int | None
    """Seed of the episode; None where it went on in the environment's stream."""


def play(
    env: AECEnv[Any, Any, Any],
    policies: Mapping[str, AgentPolicy | Skill] | None = None,
    *,
    seed: int | None = None,
    task: Task | int | None = None,
    max_turns: int | None = None,
    on_turn: Callable[[Turn], None] | None = None,
) -> PlayedEpisode:
    r"""The record of one episode in which each agent is played by a policy.

    >>> import mas_envs
    >>> env = mas_envs.make("MathLoop-v0", tasks=[Task("t", "17+25", "42")])
    >>> episode = play(env, {"solver": lambda messages: r"\boxed{42}"}, seed=0)  # an expert plays the verifier
    >>> [turn.agent_id for turn in episode.transcript], episode.returns, episode.success
    (['solver_0', 'verifier_0'], {'solver_0': 1.0, 'verifier_0': 1.0}, True)

    Args:
        env: An AEC environment whose observations hold `messages` and whose actions are text.
        policies: Agent id, role, or pattern such as `solver_*` -> a callable from messages to text, or a `Skill` for a
            scripted expert. Agents that no key names are played by the environment's perfect experts.
        seed: Seed of the episode and of the experts; None goes on with the environment's stream.
        task: A task or an index; None lets the environment draw one.
        max_turns: The episode is truncated after this many turns of all agents; None leaves it to the environment.
        on_turn: Called with each turn when it has been taken, such as to show it.

    Raises:
        BadArgumentError: If an agent has neither policy nor expert, or an argument is of the wrong kind.
        PolicyError: If a policy raises or returns no `str`: names agent and turn; its `episode` is the record so far.
    """
    _check_arguments(env, max_turns)
    team = assign_policies(env, policies or {}, random.Random(None if seed is None else f"{seed}/experts"))
    played = env if max_turns is None else TurnLimit(env, int(max_turns))
    played.reset(seed=seed, options=None if task is None else {"task": task})
    recorder = _Recorder(played, seed)
    while played.agents:
        agent_id = played.agent_selection
        recorder.settle(agent_id)
        if played.terminations[agent_id] or played.truncations[agent_id]:
            recorder.note_ending(agent_id)
            played.step(None)
            continue
        shown: tuple[Message, ...] = played.observe(agent_id)["messages"]
        messages = tuple(Message(**message) for message in shown)
        try:
            text = ask(team[agent_id], agent_id, messages, len(recorder.turns))
        except PolicyError as error:
            error.episode = recorder.cut_off(agent_id, str(error))
            raise
        turn = recorder.take(agent_id, messages, text)
        if on_turn is not None:
            on_turn(turn)
    return recorder.record()


class _Recorder:
    """Collects what happens in one episode that has just begun."""

    def __init__(self, env: AECEnv[Any, Any, Any], seed: int | None) -> None:
        self.turns: list[PlayedTurn] = []
        self._env = env
        self._seed = seed
        self._latest: dict[str, int] = {}
        self._returns = {agent_id: float(env.rewards.get(agent_id, 0.0)) for agent_id in env.possible_agents}
        self._terms: dict[str, dict[str, float]] = {agent_id: {} for agent_id in env.possible_agents}
        self._success: bool | None = None
        self._truncated = False
        self._error: str | None = None

    def settle(self, agent_id: str) -> None:
        """Book what an agent earned since it last acted."""
        reward = float(self._env._cumulative_rewards[agent_id])
        terms = {name: float(part) for name, part in self._env.infos[agent_id].get("reward_terms", {}).items()}
        for name, part in terms.items():
            self._terms[agent_id][name] = self._terms[agent_id].get(name, 0.0) + part
        if agent_id in self._latest:
            index = self._latest[agent_id]
            self.turns[index] = replace(self.turns[index], reward=reward, reward_terms=terms)

    def note_ending(self, agent_id: str) -> None:
        """Note how the episode ended for an agent."""
        info = self._env.infos[agent_id]
        self._truncated = self._truncated or bool(self._env.truncations[agent_id])
        self._success = info.get("success") if self._success is None else self._success
        self._error = self._error or info.get("error")

    def take(self, agent_id: str, messages: tuple[Message, ...], text: str) -> Turn:
        """Let the agent say `text`, and note the turn as the environment took it."""
        try:
            self._env.step(text)
        except Exception as error:
            error.add_note(f"{self._env} raised this in turn {len(self.turns)}, in which {agent_id} said {text!r:.200}")
            raise
        for payee, reward in self._env.rewards.items():
            self._returns[payee] = self._returns.get(payee, 0.0) + float(reward)
        turn = self._as_taken(agent_id, text)
        self._latest[agent_id] = len(self.turns)
        self.turns.append(PlayedTurn(agent_id, messages, turn.text, turn.valid, turn.reason))
        return turn

    def cut_off(self, asked: str, error: str) -> PlayedEpisode:
        """The record of an episode that a policy brings to an end when it is asked."""
        for agent_id in self._env.agents:
            if agent_id != asked:
                self.settle(agent_id)
        self._truncated, self._error = True, error
        return self.record()

    def record(self) -> PlayedEpisode:
        """The record of what has happened so far."""
        return PlayedEpisode(
            transcript=tuple(self.turns),
            returns=self._returns,
            reward_terms=self._terms,
            success=self._success,
            truncated=self._truncated,
            error=self._error,
            task=getattr(self._env.unwrapped, "task", None),
            seed=self._seed,
        )

    def _as_taken(self, agent_id: str, text: str) -> Turn:
        """The agent's latest turn in the environment's own transcript, or what its infos say."""
        for turn in reversed(getattr(self._env.unwrapped, "transcript", ())):
            if turn.agent_id == agent_id:
                return Turn(agent_id, turn.text, turn.valid, turn.reason)
        return Turn(agent_id, text, bool(self._env.infos.get(agent_id, {}).get("valid_action", True)))


def _check_arguments(env: AECEnv[Any, Any, Any], max_turns: int | None) -> None:
    if not isinstance(env, AECEnv):
        raise BadArgumentError(
            f"env={env!r:.80}: expected an AEC environment; make one, such as mas_envs.make('MathLoop-v0')"
        )
    if max_turns is not None and not (is_whole(max_turns) and max_turns >= 1):
        raise BadArgumentError(
            f"max_turns={max_turns!r}: expected a whole number >= 1, or None for no limit of its own"
        )
    check_speaks_text(env, "play()")
