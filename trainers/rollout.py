"""Rollouts: episodes that advance on their own, each asking its agents' policies turn by turn."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from pettingzoo import AECEnv

from adapters.llm import Episode
from mas_envs.spaces import Message
from mas_envs.tasks import Task
from trainers.engines.base import FinishReason
from trainers.env_steps import EnvSteps
from trainers.seeds import derive_seed

__all__ = [
    "Deadlines",
    "EnvPool",
    "EpisodeStart",
    "Rollout",
    "Seats",
    "TurnPolicy",
    "TurnRecord",
    "TurnReply",
    "TurnRequest",
    "collect_rollouts",
    "frequent_failures",
]

Status = Literal["completed", "truncated", "lost"]

_PAUSE_S = 0.002
_NUM_FAILURES = 5


@dataclass(frozen=True)
class TurnRequest:
    """A turn that an agent has to take."""

    request_id: str
    """Unique among the requests in flight."""
    agent_id: str
    """Who acts."""
    messages: tuple[Message, ...]
    """What the agent is shown."""
    seed: int
    """Seed of the sampling."""
    env: AECEnv[Any, Any, Any]
    """The environment at that moment, for scripted policies; others do not look at it."""


@dataclass(frozen=True)
class TurnReply:
    """What a policy says; token fields are empty for policies that are not trained here."""

    request_id: str
    """The id of the request."""
    text: str
    """The action."""
    prompt_ids: tuple[int, ...]
    """Token ids the completion was sampled from."""
    completion_ids: tuple[int, ...]
    """Token ids as sampled, the stop token included."""
    behaviour_logprobs: tuple[float, ...]
    """Natural log, one per completion token."""
    finish_reason: FinishReason
    """How the completion ended."""
    policy_version: int
    """Version of the weights."""
    seconds: float
    """Wall time."""
    error: str | None = None
    """What went wrong, for `failed`."""
    num_prompt_tokens: int = 0
    """Tokens of the prompt; counted by whoever served it."""
    num_completion_tokens: int = 0
    """Tokens of the completion."""


class TurnPolicy(Protocol):
    """Answers turns; requests join and leave at any time."""

    @property
    def num_in_flight(self) -> int:
        """Requests that were submitted and not yet given back."""
        ...

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        """Queue turns; returns at once."""
        ...

    def poll(self) -> list[TurnReply]:
        """Turns that were answered since the last poll; may work or wait until there is one."""
        ...


@dataclass(frozen=True)
class TurnRecord:
    """One agent's observation, tokens and action: one training row."""

    agent_id: str
    """Who acted."""
    role: str
    """What the agent is for."""
    policy_id: str
    """Policy that answered."""
    prompt: str
    """Text of the last message the agent was shown."""
    reply: TurnReply
    """Text and tokens."""
    valid: bool
    """Whether the environment took the action as well formed."""
    error: str | None
    """What the environment says went wrong in this turn, or why the action was not well formed."""
    reward_terms: dict[str, float]
    """Name -> amount earned from this action until the agent's next turn or the end."""


@dataclass(frozen=True)
class Rollout:
    """The record of one episode."""

    rollout_id: str
    """Unique in a run."""
    group_id: str
    """Equal for rollouts that started from the same task in the same iteration."""
    task: Task | None
    """The task, where it is known."""
    task_id: str
    """Id of the task."""
    source: str
    """Data set of the task."""
    turns: tuple[TurnRecord, ...]
    """All turns, in order."""
    returns: dict[str, float]
    """Agent id -> sum of its rewards."""
    success: bool | None
    """Whether the task was solved; None when nobody can say."""
    status: Status
    """`completed`, `truncated` by a limit or a failed tool, or `lost` because a policy failed."""
    error: str | None = None
    """Why it was truncated or lost."""
    seconds: float = 0.0
    """Wall time from reset to end."""


@dataclass(frozen=True)
class EpisodeStart:
    """An episode that is wanted."""

    rollout_id: str
    """Unique in a run; the seeds of the episode and its turns are derived from it."""
    group_id: str
    """Rollouts that are compared with each other."""
    task: Task | int | None = None
    """Where it starts from; None lets the environment draw one."""


@dataclass(frozen=True)
class Deadlines:
    """Limits outside the task's rules."""

    episode_s: float | None = None
    """Seconds one episode may take; None is no limit."""


@dataclass(frozen=True)
class Seats:
    """Which policy answers for which agent."""

    policies: dict[str, TurnPolicy]
    """Policy id -> policy."""
    policy_of: dict[str, str]
    """Agent id -> policy id."""
    role_of: dict[str, str]
    """Agent id -> role."""


class EnvPool:
    """Environments that are used again for one episode after the other.

    Args:
        make_env: Builds one environment.
        step_threads: Steps that may wait at the same time, for a grader or a retrieval server, while policies generate;
            0 takes each step where its completion arrives, so that runs repeat bit for bit.
    """

    def __init__(self, make_env: Callable[[], AECEnv[Any, Any, Any]], *, step_threads: int = 0) -> None:
        self._make_env = make_env
        self.step_threads = step_threads
        self._free: list[AECEnv[Any, Any, Any]] = []

    def take(self) -> AECEnv[Any, Any, Any]:
        """A free environment, or a new one."""
        return self._free.pop() if self._free else self._make_env()

    def give_back(self, env: AECEnv[Any, Any, Any]) -> None:
        """Let the next episode use it."""
        self._free.append(env)

    def close(self) -> None:
        """Close the free environments."""
        while self._free:
            self._free.pop().close()


@dataclass
class _Running:
    start: EpisodeStart
    episode: Episode
    replies: list[tuple[str, str, TurnReply]] = field(default_factory=list)
    """(agent id, prompt, reply) of each turn."""
    lost: str | None = None


def collect_rollouts(
    starts: Iterable[EpisodeStart],
    envs: EnvPool,
    seats: Seats,
    *,
    seed: int,
    deadlines: Deadlines | None = None,
    on_finished: Callable[[Rollout], None] | None = None,
) -> list[Rollout]:
    """Play all episodes and return their records in the order of `starts`.

    As soon as an agent's completion is there its environment steps and the next turn is submitted: no episode waits
    for another. A policy that fails or runs out of time costs only the episode it was asked in.

    Args:
        starts: The episodes.
        envs: Where environments come from.
        seats: Who answers for which agent.
        seed: Seed of the run; each turn's seed is derived from it, the rollout's id and the turn's place.
        deadlines: Limits in seconds; None is no limit.
        on_finished: Called with each rollout as it ends, for progress bars.

    Raises:
        EnvironmentFailure: If an environment raises; that is a bug in it, never the model's doing.
    """
    limits = deadlines or Deadlines()
    running: dict[str, _Running] = {}
    finished: dict[str, Rollout] = {}
    order: list[str] = []

    def finish(run: _Running) -> None:
        rollout = _record(run, seats)
        finished[run.start.rollout_id] = rollout
        del running[run.start.rollout_id]
        envs.give_back(run.episode.env)
        if on_finished is not None:
            on_finished(rollout)

    for start in starts:
        order.append(start.rollout_id)
        episode = Episode(envs.take(), seed=derive_seed(seed, start.rollout_id), task=start.task)
        running[start.rollout_id] = _Running(start, episode)
    _submit(list(running.values()), seats, seed)
    with EnvSteps[str](envs.step_threads) as steps:
        while running:
            for reply in _next_replies(seats, may_wait=not steps.num_running):
                rollout_id = reply.request_id.rpartition("/")[0]
                if rollout_id in running:  # else a late answer to an episode that was given up
                    steps.submit(rollout_id, partial(_take, running[rollout_id], reply, limits))
            waiting: list[_Running] = []
            for run in [running[rollout_id] for rollout_id in steps.finished(wait=_all_idle(seats))]:
                if run.episode.is_over:
                    finish(run)
                else:
                    waiting.append(run)
            _submit(waiting, seats, seed)
    return [finished[rollout_id] for rollout_id in order]


def frequent_failures(rollouts: Iterable[Rollout]) -> dict[str, int]:
    """Error -> rollouts that it ended, for the most frequent ones; a limit of turns is no error."""
    errors = (rollout.error for rollout in rollouts if rollout.status != "completed")
    return dict(Counter(error for error in errors if error).most_common(_NUM_FAILURES))


def _next_replies(seats: Seats, *, may_wait: bool) -> list[TurnReply]:
    """What has been answered; waits for the policy with the most to do here, for those elsewhere only if it may."""
    busy = [policy for policy in seats.policies.values() if policy.num_in_flight]
    elsewhere = [policy for policy in busy if hasattr(policy, "arrived")]
    here = [policy for policy in busy if policy not in elsewhere]
    replies = [reply for policy in elsewhere for reply in policy.arrived()]
    if here:
        return replies + max(here, key=lambda policy: policy.num_in_flight).poll()
    while elsewhere and not replies:
        time.sleep(_PAUSE_S)  # one that is slow must not hold up the answers of another, nor steps that have ended
        replies = [reply for policy in elsewhere for reply in policy.arrived()]
        if not may_wait:
            break
    return replies


def _all_idle(seats: Seats) -> bool:
    return not any(policy.num_in_flight for policy in seats.policies.values())


def _submit(runs: Sequence[_Running], seats: Seats, seed: int) -> None:
    by_policy: dict[str, list[TurnRequest]] = {}
    for run in runs:
        agent_id = run.episode.agent_id
        assert agent_id is not None
        turn = len(run.replies)
        request = TurnRequest(
            request_id=f"{run.start.rollout_id}/{turn}",
            agent_id=agent_id,
            messages=run.episode.messages,
            seed=derive_seed(seed, run.start.rollout_id, turn),
            env=run.episode.env,
        )
        by_policy.setdefault(seats.policy_of[agent_id], []).append(request)
    for policy_id, requests in by_policy.items():
        seats.policies[policy_id].submit(requests)


def _take(run: _Running, reply: TurnReply, limits: Deadlines) -> None:
    """Let the episode go on with a reply, or give it up."""
    agent_id = run.episode.agent_id
    assert agent_id is not None
    if reply.finish_reason in ("failed", "cancelled"):
        run.lost = f"the policy of {agent_id} failed: {reply.error or reply.finish_reason}"
        run.episode.cut_off(run.lost)
        return
    if reply.finish_reason == "deadline":
        run.episode.cut_off(f"{agent_id} did not answer within the call deadline")
        return
    prompt = run.episode.messages[-1]["content"] if run.episode.messages else ""
    run.replies.append((agent_id, prompt, reply))
    run.episode.act(reply.text)
    age = time.monotonic() - run.episode.started
    if not run.episode.is_over and limits.episode_s is not None and age > limits.episode_s:
        run.episode.cut_off(f"the episode took longer than {limits.episode_s:g} s")


def _record(run: _Running, seats: Seats) -> Rollout:
    episode = run.episode
    turns = tuple(
        TurnRecord(
            agent_id=agent_id,
            role=seats.role_of[agent_id],
            policy_id=seats.policy_of[agent_id],
            prompt=prompt,
            reply=reply,
            valid=turn.valid,
            error=turn.error,
            reward_terms=turn.reward_terms,
        )
        for (agent_id, prompt, reply), turn in zip(run.replies, episode.turns, strict=True)
    )
    status: Status = "lost" if run.lost else "truncated" if episode.truncated else "completed"
    task = getattr(episode.env.unwrapped, "task", None)
    return Rollout(
        rollout_id=run.start.rollout_id,
        group_id=run.start.group_id,
        task=task if isinstance(task, Task) else None,
        task_id=episode.task_id,
        source=episode.source,
        turns=turns,
        returns=dict(episode.returns),
        success=episode.success,
        status=status,
        error=episode.error,
        seconds=time.monotonic() - episode.started,
    )
