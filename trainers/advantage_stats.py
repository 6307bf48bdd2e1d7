"""What the advantages of a batch look like, agent by agent."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trainers.estimators import AdvantageReport
from trainers.grouping import Coding, Flags, Floats, Ids, encode, moments
from trainers.input_errors import TrainingInputError
from trainers.rows import Pool, Rows, Rules, read_rows

__all__ = ["AgentAdvantageStats", "advantage_stats"]

PAPER = Rules(ddof=0)  # population deviations, single samples by the formula
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAdvantageStats:
    """One agent's advantages in one batch."""

    num_rows: int
    """Turns of the agent, > 0."""
    advantage_mean: float
    """Mean advantage; dropped rows count with their 0, here and below."""
    advantage_rms: float
    """Root of the mean squared advantage."""
    second_moment: float
    """Mean squared advantage as measured; what `predicted_inflation` forecasts for normalisation by the group."""
    zero_frac: float
    """Share of rows whose advantage is exactly 0: they give no gradient."""
    lone_frac: float
    """Share of rows with a statistic over a single sample."""
    zero_std_frac: float
    """Share of rows whose deviation is exactly 0 over two or more samples."""
    guarded_frac: float
    """Share of rows whose advantage the guard `min_std` replaced."""
    reward_mean: float
    """Mean reward over the agent's rows."""
    reward_std: float
    """Population deviation of the reward over the agent's rows."""
    predicted_inflation: float | None
    """(sigma_k^2 + (mu_k - mu)^2) / sigma^2 with mu_k, sigma_k over the agent's rows in a group and mu, sigma over the
    group's rollouts, population deviations, averaged over the groups in which the agent acts and sigma > 0. None where
    there is no such group. Source: the lemma of Dr. MAS, arXiv 2602.08847: the factor by which normalisation by the
    group inflates the second moment of the agent's gradient; 1 means no inflation."""
    predicted_second_moment: float
    """The same factor averaged over the agent's rows, 0 where sigma is 0: what `second_moment` is under `grpo_rows`
    with `ddof=0`, where the group's rows and not its rollouts give mu and sigma."""


def advantage_stats(
    rewards: ArrayLike, groups: Ids, agents: Ids, rollouts: Ids, report: AdvantageReport
) -> dict[Hashable, AgentAdvantageStats]:
    """Statistics of each agent, by agent id.

    Args:
        rewards: [R] as for `compute_advantages`, like the three ids.
        groups: [R] ids.
        agents: [R] ids.
        rollouts: [R] ids.
        report: What `advantage_report` gave for these rows.

    Returns:
        One record for each agent that has a row.

    Raises:
        TrainingInputError: If the arguments do not describe the same rows.
    """
    rows = read_rows(rewards, groups, agents, rollouts)
    if report.advantages.size != rows.rewards.size:
        raise TrainingInputError(
            f"the report has {report.advantages.size} rows for {rows.rewards.size} rewards",
            "the report of these very rows",
            "pass what advantage_report returned for them",
        )
    labels = encode(agents, "agents", rows.rewards.size)[1]
    inflation, second = _inflation(rows), _predicted_second_moment(rows)
    return {
        label: _agent_stats(rows, report, code, inflation[code], float(second[code]))
        for code, label in enumerate(labels)
    }


def _agent_stats(
    rows: Rows, report: AdvantageReport, code: int, inflation: float, predicted: float
) -> AgentAdvantageStats:
    mine = rows.agent.codes == code
    advantages, rewards = report.advantages[mine], rows.rewards[mine]
    everything = moments(rewards, Coding(np.zeros(rewards.size, dtype=np.int64), 1), ddof=0)
    second_moment = float(np.mean(advantages**2))
    return AgentAdvantageStats(
        num_rows=int(mine.sum()),
        advantage_mean=float(advantages.mean()),
        advantage_rms=float(np.sqrt(second_moment)),
        second_moment=second_moment,
        zero_frac=float(np.mean(advantages == 0.0)),
        lone_frac=float(report.is_lone[mine].mean()),
        zero_std_frac=float(report.has_zero_std[mine].mean()),
        guarded_frac=float(report.is_guarded[mine].mean()),
        reward_mean=float(everything.mean[0]),
        reward_std=float(everything.std[0]),
        predicted_inflation=None if np.isnan(inflation) else float(inflation),
        predicted_second_moment=predicted,
    )


def _inflation(rows: Rows) -> Floats:
    """[K] the predicted inflation of each agent, NaN where no group defines one."""
    size = rows.agent.size
    group = rows.among_rollouts(PAPER)
    coding = rows.agent_group()
    agent = rows.among(coding, PAPER)
    _, first_row = np.unique(coding.codes, return_index=True)  # one row stands for its agent group
    first_row = first_row[_spreads(group)[first_row]]
    variance, gap = agent.std[first_row] ** 2, agent.mean[first_row] - group.mean[first_row]
    factor = (variance + gap**2) / group.std[first_row] ** 2
    owner = rows.agent.codes[first_row]
    count = np.bincount(owner, minlength=size)
    total = np.bincount(owner, weights=factor, minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _spreads(pool: Pool) -> Flags:
    """[R] whether a deviation is more than the rounding of sums that are equal on paper, as in a zero-sum split."""
    flags: Flags = pool.std > _ROUNDING * np.maximum(np.abs(pool.mean), 1.0)
    return flags


def _predicted_second_moment(rows: Rows) -> Floats:
    """[K] the lemma's factor with mu and sigma over the group's rows, averaged over each agent's rows."""
    group, agent = rows.among(rows.group, PAPER), rows.among(rows.agent_group(), PAPER)
    spread = np.where(_spreads(group), group.std, np.inf)
    factor = (agent.std**2 + (agent.mean - group.mean) ** 2) / spread**2
    codes, size = rows.agent.codes, rows.agent.size
    return np.bincount(codes, weights=factor, minlength=size) / np.maximum(np.bincount(codes, minlength=size), 1)
