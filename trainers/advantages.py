"""Advantages of turns: rewards and ids in, float64 arrays out.

>>> rewards = [1.0, 0.0, 1.0, 0.0]
>>> compute_advantages(rewards, ["q"] * 4, ["solver_0"] * 2 + ["verifier_0"] * 2, [0, 1, 0, 1]).round(3)
array([ 0.707, -0.707,  0.707, -0.707])

The estimators and the samples each compares with: `trainers.estimators`. The rules they share: `trainers.rows.Rules`.
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantage_stats import AgentAdvantageStats, advantage_stats
from trainers.estimators import (
    ESTIMATORS,
    AdvantageReport,
    Estimator,
    leave_one_out,
    register_estimator,
    standardise,
)
from trainers.grouping import Floats, Ids
from trainers.rows import AdvantageOptions, Lone, OnZeroStd, Rows, Rules, read_rows, read_rules

__all__ = [
    "ESTIMATORS",
    "AdvantageOptions",
    "AdvantageReport",
    "AgentAdvantageStats",
    "Estimator",
    "Lone",
    "OnZeroStd",
    "Rows",
    "Rules",
    "advantage_report",
    "advantage_stats",
    "compute_advantages",
    "leave_one_out",
    "register_estimator",
    "standardise",
]


def compute_advantages(
    rewards: ArrayLike,
    groups: Ids,
    agents: Ids,
    rollouts: Ids,
    estimator: str | Estimator = "drmas",
    **options: Unpack[AdvantageOptions],
) -> Floats:
    """The advantage of each row; every completion token of the turn gets it.

    Args:
        rewards: [R] one per turn: the reward its agent is trained on, in the task's unit, finite.
        groups: [R] ids, equal for turns of rollouts that started from the same task. Ids are hashable values of any
            kind, or a one-dimensional array of them.
        agents: [R] ids, equal for turns of the same agent.
        rollouts: [R] ids, equal for turns of the same episode; need to be unique inside their group only.
        estimator: A name in `ESTIMATORS`, or a function of rows and rules.
        **options: `eps`, `ddof`, `lone`, `min_std`, `on_zero_std`, `step_weight` as in `Rules`; `turns`, `anchors` and
            `step_returns`, one entry per row, for the estimators that need them.

    Returns:
        [R] float64, always finite, in the order of the rows; no unit, or the reward's for estimators without division.

    Raises:
        TrainingInputError: A ValueError, if lengths differ, a number is not finite, an array has more than one
            dimension, an option has an impossible value, or the estimator is unknown.
        TypeError: If there is an option that does not exist.
    """
    return advantage_report(rewards, groups, agents, rollouts, estimator, **options).advantages


def advantage_report(
    rewards: ArrayLike,
    groups: Ids,
    agents: Ids,
    rollouts: Ids,
    estimator: str | Estimator = "drmas",
    **options: Unpack[AdvantageOptions],
) -> AdvantageReport:
    """The advantages of `compute_advantages`, with the rows that a rule touched; same arguments and errors.

    >>> report = advantage_report([1.0, 0.0, 0.5], ["q"] * 3, ["a", "a", "b"], [0, 1, 1], lone="drop")
    >>> report.is_kept
    array([ True,  True, False])
    """
    rules = read_rules(options)
    rows = read_rows(
        rewards,
        groups,
        agents,
        rollouts,
        turns=options.get("turns"),
        anchors=options.get("anchors"),
        step_returns=options.get("step_returns"),
    )
    function = ESTIMATORS[estimator] if isinstance(estimator, str) else estimator
    if rows.rewards.size == 0:
        nowhere = np.zeros(0, dtype=np.bool_)
        return AdvantageReport(
            advantages=np.zeros(0), is_lone=nowhere, has_zero_std=nowhere, is_guarded=nowhere, is_kept=nowhere
        )
    return function(rows, rules)
