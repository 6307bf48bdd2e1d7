"""Advantage estimators by name: which samples give the mean, and which the deviation.

| name | value | mean over | deviation over |
| --- | --- | --- | --- |
| `drmas` | reward of the row | the agent's rows in the group | the same |
| `drmas_mean` | reward of the row | the agent's rows in the group | rollouts of the group |
| `drmas_std` | reward of the row | rollouts of the group | the agent's rows in the group |
| `drmas_nostd` | reward of the row | the agent's rows in the group | none |
| `grpo` | mean reward of the rollout | rollouts of the group | the same |
| `dr_grpo` | mean reward of the rollout | rollouts of the group | none |
| `grpo_rows` | reward of the row | rows of the group | the same |
| `rloo` | mean reward of the rollout | the other rollouts of the group | none |
| `drmas_rloo` | reward of the row | the agent's other rows in the group | none |
| `at_grpo` | reward of the row | the agent's rows in the group at this turn | the same |
| `gigpo` | `grpo`, plus `step_weight` times the return measured against the rows with the same anchor | | |
| `gigpo_nostd` | the same without deviations | | |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trainers.grouping import Coding, Flags, Floats, pair
from trainers.input_errors import TrainingInputError
from trainers.names import NameTable
from trainers.rows import Pool, Rows, Rules

__all__ = ["ESTIMATORS", "AdvantageReport", "Estimator", "leave_one_out", "register_estimator", "standardise"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdvantageReport:
    """Advantages, and which rows a rule of `Rules` touched; one entry per row."""

    advantages: Floats
    """[R] float64, always finite."""
    is_lone: Flags
    """[R]: a statistic of the row has one sample only."""
    has_zero_std: Flags
    """[R]: the row's deviation runs over two or more samples that are all equal. Without division: the samples of its
    mean are."""
    is_guarded: Flags
    """[R]: the guard `min_std` replaced the row's advantage."""
    is_kept: Flags
    """[R]: False for rows that `lone="drop"` takes out of training; their advantage is 0."""


Estimator = Callable[[Rows, Rules], AdvantageReport]
ESTIMATORS: NameTable[Estimator] = NameTable("estimator")


def register_estimator(name: str) -> Callable[[Estimator], Estimator]:
    """A decorator that makes an estimator known by name.

    >>> @register_estimator("best_of_group")
    ... def best_of_group(rows: Rows, rules: Rules) -> AdvantageReport:
    ...     everyone = rows.among(rows.group, rules)
    ...     return standardise((rows.rewards > everyone.mean).astype(float), centre=everyone, scale=None, rules=rules)
    >>> del ESTIMATORS["best_of_group"]  # an example leaves no trace

    Raises:
        TrainingInputError: If the name is taken.
    """
    return ESTIMATORS.add(name)


def standardise(
    values: Floats, *, centre: Pool, scale: Pool | None, rules: Rules, wider: Pool | None = None
) -> AdvantageReport:
    """(values - mean) / (std + eps) under the three rules of `Rules`; the one place that applies them.

    Args:
        values: [R] what is compared: the reward of the row or of its rollout.
        centre: Gives the mean.
        scale: Gives the deviation; None: no division.
        rules: The rules.
        wider: Gives the deviation that the guard falls back to with `on_zero_std="group"`; None: there is none.
    """
    spread = centre if scale is None else scale
    is_lone = centre.is_lone | spread.is_lone
    has_zero_std = (spread.std == 0.0) & ~spread.is_lone
    residual = values - centre.mean
    is_guarded = np.zeros(values.size, dtype=np.bool_)
    if scale is None:
        advantages = residual
    else:
        std, is_guarded, is_muted = _guard(residual, scale, rules, wider)
        advantages = np.where(is_muted, 0.0, residual / (std + rules.eps))
    is_kept = np.ones(values.size, dtype=np.bool_)
    if rules.lone_rule in ("zero", "drop"):
        advantages = np.where(is_lone, 0.0, advantages)
        is_guarded &= ~is_lone
        is_kept = ~is_lone if rules.lone_rule == "drop" else is_kept
    return AdvantageReport(
        advantages=advantages, is_lone=is_lone, has_zero_std=has_zero_std, is_guarded=is_guarded, is_kept=is_kept
    )


def _guard(residual: Floats, scale: Pool, rules: Rules, wider: Pool | None) -> tuple[Floats, Flags, Flags]:
    """The deviation to divide by, the rows that the guard touches, and those of them that it sets to 0."""
    if rules.min_std is None:
        nowhere = np.zeros(residual.size, dtype=np.bool_)
        return scale.std, nowhere, nowhere
    is_stand_in = scale.is_lone & (rules.lone_rule == "reward")  # a deviation of 1 by decree, not by measurement
    is_guarded = (scale.std <= rules.min_std) & (residual != 0.0) & ~is_stand_in
    if rules.on_zero_std == "zero" or wider is None:
        return scale.std, is_guarded, is_guarded
    is_rescued = is_guarded & (wider.std > rules.min_std) & ~wider.is_lone
    return np.where(is_rescued, wider.std, scale.std), is_guarded, is_guarded & ~is_rescued


def leave_one_out(values: Floats, pool: Pool, rules: Rules) -> AdvantageReport:
    """Each value less the mean of the other samples of its pool; a single sample follows `rules.lone`."""
    report = standardise(values, centre=pool, scale=None, rules=rules)
    factor = np.where(pool.is_lone, 1.0, pool.count / np.maximum(pool.count - 1.0, 1.0))
    return replace(report, advantages=report.advantages * factor)


@register_estimator("drmas")
def drmas(rows: Rows, rules: Rules) -> AdvantageReport:
    """Each reward against the rewards of the same agent in the same group.

    Source: Dr. MAS, arXiv 2602.08847, section 4 and algorithm 1. Differs in: the sample deviation by default, as in the
    published code; `ddof=0` is the printed formula.
    """
    pool = rows.among(rows.agent_group(), rules)
    return standardise(rows.rewards, centre=pool, scale=pool, rules=rules, wider=_wider(rows, rules))


@register_estimator("drmas_mean")
def drmas_mean(rows: Rows, rules: Rules) -> AdvantageReport:
    """The agent's mean, the group's deviation. Source: ablation of Dr. MAS, arXiv 2602.08847; not in its code."""
    centre = rows.among(rows.agent_group(), rules)
    return standardise(rows.rewards, centre=centre, scale=rows.among_rollouts(rules), rules=rules)


@register_estimator("drmas_std")
def drmas_std(rows: Rows, rules: Rules) -> AdvantageReport:
    """The group's mean, the agent's deviation. Source: ablation of Dr. MAS, arXiv 2602.08847; not in its code.

    Explodes for an agent whose rewards are all equal while the group's are not; set `min_std`.
    """
    group, agent = rows.among_rollouts(rules), rows.among(rows.agent_group(), rules)
    return standardise(rows.rewards, centre=group, scale=agent, rules=rules, wider=group)


@register_estimator("drmas_nostd")
def drmas_nostd(rows: Rows, rules: Rules) -> AdvantageReport:
    """`drmas` without division, as `dr_grpo` is to `grpo`."""
    return standardise(rows.rewards, centre=rows.among(rows.agent_group(), rules), scale=None, rules=rules)


@register_estimator("grpo")
def grpo(rows: Rows, rules: Rules) -> AdvantageReport:
    """The rollout's mean reward against the other rollouts of its group, the same for all its rows.

    Source: DeepSeekMath, arXiv 2402.03300, section 4.1.2. Differs in: a rollout has several rows, whose rewards differ
    when one agent pays a penalty; their mean stands for the rollout, as in the published code of Dr. MAS.
    """
    pool = rows.among_rollouts(rules)
    return standardise(rows.rollout_means(), centre=pool, scale=pool, rules=rules)


@register_estimator("dr_grpo")
def dr_grpo(rows: Rows, rules: Rules) -> AdvantageReport:
    """`grpo` without division. Source: Dr. GRPO, arXiv 2503.20783, section 3.2."""
    return standardise(rows.rollout_means(), centre=rows.among_rollouts(rules), scale=None, rules=rules)


@register_estimator("grpo_rows")
def grpo_rows(rows: Rows, rules: Rules) -> AdvantageReport:
    """Each reward against all rows of the group: counts turns as `drmas` does, but does not part the agents."""
    pool = rows.among(rows.group, rules)
    return standardise(rows.rewards, centre=pool, scale=pool, rules=rules)


@register_estimator("rloo")
def rloo(rows: Rows, rules: Rules) -> AdvantageReport:
    """The rollout's mean reward less the mean of the other rollouts of its group.

    Source: REINFORCE leave-one-out, arXiv 2402.14740. Differs in: the rollout's mean as in `grpo`, where the published
    code of Dr. MAS mixes the first row of a rollout with each row's own reward, so that the row order matters.
    """
    return leave_one_out(rows.rollout_means(), rows.among_rollouts(rules), rules)


@register_estimator("drmas_rloo")
def drmas_rloo(rows: Rows, rules: Rules) -> AdvantageReport:
    """Each reward less the mean of the agent's other rows in the group; `rloo` inside each agent group."""
    return leave_one_out(rows.rewards, rows.among(rows.agent_group(), rules), rules)


@register_estimator("at_grpo")
def at_grpo(rows: Rows, rules: Rules) -> AdvantageReport:
    """Each reward against those of the same agent at the same turn in the same group; needs `turns`.

    Source: AT-GRPO, arXiv 2510.11062, the grouping of section 4. Differs in: the paper samples several completions at
    each turn of one episode, so that a group shares its prompt; here a group compares the turns of parallel rollouts.
    """
    coding = pair(rows.agent_group(), _needed(rows.turns, "at_grpo", "turns"))
    pool = rows.among(coding, rules)
    return standardise(rows.rewards, centre=pool, scale=pool, rules=rules, wider=_wider(rows, rules))


@register_estimator("gigpo")
def gigpo(rows: Rows, rules: Rules) -> AdvantageReport:
    """`grpo` plus `step_weight` times the return against rows that start from the same state; needs `anchors`.

    Source: GiGPO, arXiv 2505.10978, equations 3 to 8. Differs in: rows share an anchor only within one agent (the paper
    has one agent). A row alone at its anchor gets no step part, as published, whatever `lone` says.
    """
    return _gigpo(rows, rules, "gigpo")


@register_estimator("gigpo_nostd")
def gigpo_nostd(rows: Rows, rules: Rules) -> AdvantageReport:
    """`gigpo` without division: the normalisation of 1 that the paper also offers, the default of its code."""
    return _gigpo(rows, rules, "gigpo_nostd")


def _gigpo(rows: Rows, rules: Rules, name: str) -> AdvantageReport:
    is_scaled = name == "gigpo"
    episode = grpo(rows, rules) if is_scaled else dr_grpo(rows, rules)
    returns = rows.rewards if rows.step_returns is None else rows.step_returns
    step_rules = replace(rules, lone="formula")
    pool = rows.among(pair(rows.agent_group(), _needed(rows.anchors, name, "anchors")), step_rules, returns)
    step = standardise(returns, centre=pool, scale=pool if is_scaled else None, rules=step_rules)
    return replace(
        episode,
        advantages=np.where(episode.is_kept, episode.advantages + rules.step_weight * step.advantages, 0.0),
        is_guarded=episode.is_guarded | step.is_guarded,
    )


def _wider(rows: Rows, rules: Rules) -> Pool | None:
    """The group's deviation for the guard, worked out only where it can be asked for."""
    return rows.among_rollouts(rules) if rules.min_std is not None and rules.on_zero_std == "group" else None


def _needed(coding: Coding | None, estimator: str, name: str) -> Coding:
    if coding is None:
        raise TrainingInputError(
            f"the estimator {estimator!r} got no {name}", f"one entry of {name} per row", f"pass {name}=..."
        )
    return coding
