"""Evaluation: avg@k and unbiased pass@k, by source and over all, with bootstrap intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from mas_envs.tasks import TaskSet
from trainers.prices import Price, cost, price_of
from trainers.rollout import Deadlines, EnvPool, EpisodeStart, Rollout, Seats, collect_rollouts, frequent_failures

__all__ = ["AgentUse", "Evaluation", "Score", "bootstrap_interval", "evaluate", "pass_at_k", "summarise"]


@dataclass(frozen=True)
class Score:
    """Success on some tasks."""

    num_tasks: int
    """Tasks measured."""
    avg_at_k: float
    """Mean over tasks of the share of successful rollouts, in [0, 1]."""
    interval: tuple[float, float]
    """95 % bootstrap interval of avg_at_k over tasks."""
    pass_at_k: dict[int, float]
    """k -> chance that at least one of k rollouts succeeds, unbiased; k = 1, 2, 4, ... up to the rollouts per task."""


@dataclass(frozen=True)
class AgentUse:
    """What one agent did and used up, in all rollouts together."""

    turns: int
    """Turns taken."""
    turns_per_episode: float
    """Mean over rollouts."""
    valid_frac: float
    """Share of turns with a valid action."""
    prompt_tokens: int
    """Tokens read."""
    completion_tokens: int
    """Tokens written."""
    seconds: float
    """Time from request to completion, summed over turns."""
    cost: float | None
    """In the currency of the price table; None without a price."""


@dataclass(frozen=True)
class Evaluation:
    """The result of measuring a team on a task set."""

    tasks: str
    """Name of the task set."""
    n: int
    """Rollouts per task."""
    overall: Score
    """Over all tasks."""
    by_source: dict[str, Score]
    """Source -> score on its tasks."""
    agents: dict[str, AgentUse]
    """Agent id -> what it did."""
    unfinished: int
    """Rollouts that were truncated or lost; they count as failures."""
    failures: dict[str, int] = field(default_factory=dict)
    """The most frequent errors that ended them -> how many."""


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is correct.

    Source: Chen et al. 2021, arXiv 2107.03374, equation 1: 1 - C(n-c, k) / C(n, k).

    >>> pass_at_k(4, 1, 2)
    0.5

    Raises:
        ValueError: If not 1 <= k <= num_samples or not 0 <= num_correct <= num_samples.
    """
    if not 1 <= k <= num_samples or not 0 <= num_correct <= num_samples:
        raise ValueError(
            f"pass@{k} of {num_correct} correct in {num_samples} samples is undefined; expected 1 <= k <= samples and "
            "0 <= correct <= samples; draw more samples per task"
        )
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def bootstrap_interval(
    values: Sequence[float] | NDArray[np.float64], *, level: float = 0.95, seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of independent values; the same for the same values and seed.

    Args:
        values: [N], at least one.
        level: Coverage, in (0, 1).
        seed: Seed of the resampling.
        resamples: Number of resampled means.
    """
    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    rows = max(1, 4_000_000 // len(data))
    means = np.concatenate(
        [
            data[rng.integers(len(data), size=(min(rows, resamples - start), len(data)))].mean(axis=1)
            for start in range(0, resamples, rows)
        ]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def evaluate(  # noqa: PLR0913  # what to measure, whom, how often, and two courtesies
    tasks: TaskSet,
    envs: EnvPool,
    seats: Seats,
    *,
    n: int,
    seed: int,
    prices: Mapping[str, Price] | None = None,
    deadlines: Deadlines | None = None,
    on_finished: Callable[[Rollout], None] | None = None,
) -> tuple[Evaluation, list[Rollout]]:
    """Play each task `n` times and score the team.

    Args:
        tasks: Tasks, each played n times.
        envs: Where environments come from.
        seats: Who answers for which agent.
        n: Rollouts per task, >= 1.
        seed: Seed of the episodes.
        prices: Agent id, role or policy id -> price.
        deadlines: Limits in seconds.
        on_finished: Called with each rollout as it ends.

    Returns:
        The evaluation and the rollouts, n in a row for each task.
    """
    numbers = count()
    starts = [
        EpisodeStart(rollout_id=f"evaluation-{next(numbers)}", group_id=task.id, task=task)
        for task in tasks
        for _ in range(n)
    ]
    rollouts = collect_rollouts(starts, envs, seats, seed=seed, deadlines=deadlines, on_finished=on_finished)
    return summarise(rollouts, tasks=tasks.name, n=n, prices=prices), rollouts


def summarise(
    rollouts: Sequence[Rollout], *, tasks: str, n: int, prices: Mapping[str, Price] | None = None
) -> Evaluation:
    """Scores and use from rollouts that come n in a row for each task."""
    groups = [rollouts[start : start + n] for start in range(0, len(rollouts), n)]
    sources = dict.fromkeys(group[0].source for group in groups)
    return Evaluation(
        tasks=tasks,
        n=n,
        overall=_score(groups, n),
        by_source={source: _score([group for group in groups if group[0].source == source], n) for source in sources},
        agents=_use(rollouts, prices or {}),
        unfinished=sum(rollout.status != "completed" for rollout in rollouts),
        failures=frequent_failures(rollouts),
    )


def _score(groups: Sequence[Sequence[Rollout]], n: int) -> Score:
    correct = [sum(rollout.success is True for rollout in group) for group in groups]
    shares = [hits / n for hits in correct]
    ks = sorted({2**power for power in range(n.bit_length()) if 2**power <= n} | {n})
    return Score(
        num_tasks=len(groups),
        avg_at_k=float(np.mean(shares)),
        interval=bootstrap_interval(shares),
        pass_at_k={k: float(np.mean([pass_at_k(n, hits, k) for hits in correct])) for k in ks},
    )


def _use(rollouts: Sequence[Rollout], prices: Mapping[str, Price]) -> dict[str, AgentUse]:
    agent_ids = dict.fromkeys(agent_id for rollout in rollouts for agent_id in rollout.returns)
    use = {}
    for agent_id in agent_ids:
        turns = [turn for rollout in rollouts for turn in rollout.turns if turn.agent_id == agent_id]
        prompt_tokens = sum(turn.reply.num_prompt_tokens for turn in turns)
        completion_tokens = sum(turn.reply.num_completion_tokens for turn in turns)
        price = price_of(prices, agent_id, turns[0].role, turns[0].policy_id) if turns else None
        use[agent_id] = AgentUse(
            turns=len(turns),
            turns_per_episode=len(turns) / len(rollouts),
            valid_frac=sum(turn.valid for turn in turns) / len(turns) if turns else float("nan"),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            seconds=sum(turn.reply.seconds for turn in turns),
            cost=None if price is None else cost(price, prompt_tokens, completion_tokens),
        )
    return use
