"""`RecordEpisodes`: every episode as one line of JSON, and `read_episodes`, which reads them back."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pettingzoo import AECEnv

from mas_envs.conversation import Turn
from mas_envs.tasks import Task
from mas_envs.wrappers.transparent import Transparent

__all__ = ["RecordEpisodes", "RecordedEpisode", "RecordedTurn", "read_episodes"]


@dataclass
class RecordedTurn:
    """One turn, with what it earned its agent."""

    agent_id: str
    """Who spoke."""
    text: str
    """What the environment took as the action."""
    valid: bool = True
    """Whether the action had the right form."""
    reason: str | None = None
    """Why it was not valid."""
    reward: float = 0.0
    """What the agent earned from this turn until its next, as `last()` reports it."""
    reward_terms: dict[str, float] = field(default_factory=dict)
    """The parts of `reward` by name; empty where the environment names none."""


@dataclass
class RecordedEpisode:
    """One episode, as it stands in a line of the file."""

    env_id: str
    """Id the environment was made by, or its name."""
    seed: int | None
    """Seed of the `reset` that began it; None where the stream went on."""
    task: Task | None
    """What the episode started from, without metadata; None for an environment that has no tasks."""
    turns: list[RecordedTurn] = field(default_factory=list)
    """In order."""
    returns: dict[str, float] = field(default_factory=dict)
    """Agent id -> sum of its rewards."""
    status: Literal["finished", "abandoned"] = "abandoned"
    """Whether it ended, or was left by `reset` or `close`."""
    success: bool | None = None
    """Whether the task was solved; None when nobody can say."""
    truncated: bool = False
    """Ended by a limit outside the task's rules."""
    error: str | None = None
    """What failed outside the agents."""


class RecordEpisodes(Transparent):
    """Appends each episode to a file when it has ended, or is left in the middle by `reset` or `close`.

    A line is written in one piece, so environments in many threads and processes may share a file. Episodes without a
    turn leave no line. A deep copy records its own course to the same file.

    >>> import mas_envs, tempfile
    >>> path = Path(tempfile.mkdtemp(), "episodes.jsonl")
    >>> env = RecordEpisodes(mas_envs.make("MathSolo-v0"), path)
    >>> env.reset(seed=0)
    >>> env.step("no answer")
    >>> [episode] = read_episodes(path)
    >>> episode.env_id, episode.turns[0].text, episode.turns[0].reward_terms, episode.success
    ('MathSolo-v0', 'no answer', {'correct': 0.0, 'invalid': -0.1}, False)

    Args:
        env: Any AEC environment; where it has a `transcript`, the turns are taken from there.
        path: A `.jsonl` file; made with its folders when missing, and added to when not.
        record_abandoned: Whether episodes that did not end are written.
    """

    def __init__(self, env: AECEnv[str, Any, Any], path: str | Path, *, record_abandoned: bool = True) -> None:
        super().__init__(env)
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.record_abandoned = record_abandoned
        self._episode: RecordedEpisode | None = None
        self._latest: dict[str, RecordedTurn] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Write the present episode if it was left, and start another."""
        self._abandon()
        self.env.reset(seed=seed, options=options)
        env = self.env.unwrapped
        spec, task = getattr(env, "spec", None), getattr(env, "task", None)
        self._episode = RecordedEpisode(str(env) if spec is None else spec.id, seed, task)
        self._episode.returns = {agent_id: float(reward) for agent_id, reward in self.env.rewards.items()}
        self._latest = {}
        self._add_turns(None)

    def step(self, action: Any) -> None:
        """Take the selected agent's turn, and write the episode if that ended it."""
        if not self.is_running:
            self.env.step(action)
            return
        agent_id = self.env.agent_selection
        is_turn = action is not None
        self._settle(agent_id)
        self.env.step(action)
        episode = self._episode
        if episode is None:
            return
        if is_turn:
            for payee, reward in self.env.rewards.items():
                episode.returns[payee] = episode.returns.get(payee, 0.0) + float(reward)
            self._add_turns(Turn(agent_id, str(action), valid=True))
        if all(self.env.terminations[other] or self.env.truncations[other] for other in self.env.agents):
            self._finish(episode)

    def close(self) -> None:
        """Write the present episode if it was left, and close the environment."""
        self._abandon()
        self.env.close()

    def _add_turns(self, action: Turn | None) -> None:
        """Note the turns that were taken: by the environment's transcript, else the action itself."""
        if self._episode is None:
            return
        turns = self._episode.turns
        transcript: list[Turn] | None = getattr(self.env.unwrapped, "transcript", None)
        new = ([] if action is None else [action]) if transcript is None else transcript[len(turns) :]
        for turn in new:
            recorded = RecordedTurn(turn.agent_id, turn.text, turn.valid, turn.reason)
            if transcript is None:
                recorded.valid = bool(self.env.infos.get(turn.agent_id, {}).get("valid_action", True))
            turns.append(recorded)
            self._latest[turn.agent_id] = recorded

    def _settle(self, agent_id: str) -> None:
        """Note what the agent's latest turn has earned it, before it takes another or leaves."""
        turn = self._latest.get(agent_id)
        if turn is not None and agent_id in self.env.agents:
            turn.reward = float(self.env._cumulative_rewards[agent_id])
            terms: Mapping[str, float] = self.env.infos[agent_id].get("reward_terms", {})
            turn.reward_terms = {name: float(amount) for name, amount in terms.items()}

    def _finish(self, episode: RecordedEpisode) -> None:
        infos, truncations = self.env.infos, self.env.truncations
        episode.status = "finished"
        episode.truncated = any(truncations.values())
        episode.success = next((info["success"] for info in infos.values() if info.get("success") is not None), None)
        self._write(episode)

    def _abandon(self) -> None:
        if self._episode is not None and self._episode.turns and self.record_abandoned:
            self._write(self._episode)
        self._episode = None

    def _write(self, episode: RecordedEpisode) -> None:
        for agent_id in self.env.agents:
            self._settle(agent_id)
        errors = (info.get("error") for info in self.env.infos.values())
        episode.error = next((error for error in errors if error is not None), None)
        self._episode = None
        _append_line(self.path, json.dumps(_as_plain(episode), allow_nan=True))


def read_episodes(path: str | Path) -> Iterator[RecordedEpisode]:
    """The episodes in a file, in order; a last line that is still being written is passed over.

    A broken line in the middle, as a crash leaves it, is passed over with a warning that names it.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                episode = _from_plain(record)
            except (ValueError, KeyError, TypeError) as error:
                if line.endswith(b"\n"):
                    warnings.warn(f"{path}, line {number} is no episode and is left out: {error}", stacklevel=2)
                continue
            yield episode


def _as_plain(episode: RecordedEpisode) -> dict[str, Any]:
    record = {name: getattr(episode, name) for name in RecordedEpisode.__dataclass_fields__}
    task = episode.task
    if task is not None:
        record["task"] = {"id": task.id, "question": task.question, "answer": task.answer, "source": task.source}
    record["turns"] = [asdict(turn) for turn in episode.turns]
    return record


def _from_plain(record: dict[str, Any]) -> RecordedEpisode:
    task = record["task"]
    if task is not None:
        answer = task["answer"]
        task = Task(task["id"], task["question"], answer if isinstance(answer, str) else tuple(answer), task["source"])
    turns = [RecordedTurn(**turn) for turn in record["turns"]]
    return RecordedEpisode(**{**record, "task": task, "turns": turns})


def _append_line(path: Path, line: str) -> None:
    """Add a line in a single write, which the operating system does not mix with the writes of others."""
    data = line.encode("ascii") + b"\n"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data  # a crash left half a line
        if os.write(descriptor, data) != len(data):
            raise OSError(f"{path} took only a part of an episode; is the disk full? free some space and start anew")
    finally:
        os.close(descriptor)
