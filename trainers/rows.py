"""The turns of a batch as arrays, and the rules by which estimators treat single samples and zero deviations."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import ArrayLike

from trainers.grouping import Coding, Flags, Floats, Ids, Moments, encode, moments, pair
from trainers.input_errors import TrainingInputError

__all__ = ["AdvantageOptions", "Lone", "OnZeroStd", "Pool", "Rows", "Rules", "read_rows", "read_rules"]

Lone = Literal["reward", "zero", "drop", "formula"]
OnZeroStd = Literal["zero", "group"]


class AdvantageOptions(TypedDict, total=False):
    """Keyword options of `compute_advantages` and `advantage_report`, with the meaning that `Rules` and `Rows` give."""

    eps: float
    ddof: int
    lone: Lone | None
    min_std: float | None
    on_zero_std: OnZeroStd
    step_weight: float
    turns: Ids | None
    anchors: Ids | None
    step_returns: ArrayLike | None


ROW_OPTIONS = ("turns", "anchors", "step_returns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What every estimator does with deviations, single samples and zero deviations.

    An advantage is (value - mean) / (std + eps). Three rules, the same for all estimators, in this order:

    1. *Lone*: where the mean or the deviation runs over one sample only, `lone` decides.
    2. *Flat*: where all samples of a statistic are equal, their mean is exactly their value and their deviation exactly
       0. A value measured against its own samples is then exactly 0, whatever it is divided by.
    3. *Guard*: where the deviation is at most `min_std` and the value differs from the mean - which takes a mean and a
       deviation from different samples, or a `min_std` above 0 - `on_zero_std` decides. Without a guard the result is
       (value - mean) / eps: `drmas_std` reaches 1e6 for an agent whose own rewards are all equal.
    """

    eps: float = 1e-6
    """Added to every deviation; reward unit, > 0."""
    ddof: int = 1
    """1: sample deviation, as in the published code; 0: population deviation, as printed in the paper."""
    lone: Lone | None = None
    """What a statistic over a single sample gives. `reward`: mean 0 and deviation 1, so the raw reward, as published;
    `zero`: the advantage is 0; `drop`: as `zero`, and the row is marked as not to be trained; `formula`: the sample is
    its own mean and its deviation is 0. None: `reward` with ddof=1, `formula` with ddof=0."""
    min_std: float | None = None
    """The guard's threshold, reward unit, >= 0; a deviation that is not above it counts as none. None: no guard."""
    on_zero_std: OnZeroStd = "zero"
    """What the guard gives. `zero`: no advantage; `group`: the deviation over the group's rollouts takes the place of
    the agent's, and no advantage if that is not above `min_std` either."""
    step_weight: float = 1.0
    """Weight of the step-level part of `gigpo`, no unit."""

    def __post_init__(self) -> None:
        _expect(np.isfinite(self.eps) and self.eps > 0, "eps", self.eps, "a positive number", "leave it at 1e-6")
        _expect(self.ddof in (0, 1), "ddof", self.ddof, "0 or 1", "use 1 for the published code, 0 for the formula")
        lones = get_args(Lone)
        _expect(self.lone is None or self.lone in lones, "lone", self.lone, f"one of {lones}", "pick one of these")
        _expect(
            self.min_std is None or (np.isfinite(self.min_std) and self.min_std >= 0),
            *("min_std", self.min_std, "None or a number >= 0", "use 0.0 to guard exact zeros only"),
        )
        choices = get_args(OnZeroStd)
        _expect(self.on_zero_std in choices, "on_zero_std", self.on_zero_std, f"one of {choices}", "pick one of these")
        _expect(bool(np.isfinite(self.step_weight)), "step_weight", self.step_weight, "a finite number", "use 1.0")

    @property
    def lone_rule(self) -> Lone:
        """The rule for single samples, with the default worked out."""
        if self.lone is not None:
            return self.lone
        return "reward" if self.ddof == 1 else "formula"


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The statistics of the samples that a row is compared with, looked up for each of R rows."""

    mean: Floats
    """[R]; 0 for a lone row under the rule `reward`."""
    std: Floats
    """[R]; 1 for a lone row under the rule `reward`."""
    count: Floats
    """[R] samples."""

    @property
    def is_lone(self) -> Flags:
        """[R]: the statistic has one sample only."""
        lone: Flags = self.count == 1
        return lone

    @classmethod
    def look_up(cls, table: Moments, coding: Coding, rules: Rules) -> "Pool":
        """The statistics of each row's class, with the rule for single samples applied."""
        mean, std, count = table.mean, table.std, table.count
        if rules.lone_rule == "reward":
            mean, std = np.where(count == 1, 0.0, mean), np.where(count == 1, 1.0, std)
        return cls(mean[coding.codes], std[coding.codes], count[coding.codes].astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rows:
    """One entry per turn, in any order; what an estimator gets."""

    rewards: Floats
    """[R] float64, finite."""
    group: Coding
    """Turns that started from the same task."""
    rollout: Coding
    """Turns of the same episode; equal ids in different groups are different rollouts."""
    agent: Coding
    """Turns of the same agent, over all groups."""
    turns: Coding | None = None
    """The turn's index; for `at_grpo`."""
    anchors: Coding | None = None
    """The state the turn started from; for `gigpo`."""
    step_returns: Floats | None = None
    """[R] return from this turn on; for `gigpo`. None: the rewards."""

    def rollout_means(self) -> Floats:
        """[R]: the mean reward over the turns of a row's rollout."""
        return moments(self.rewards, self.rollout, ddof=0).mean[self.rollout.codes]

    def among_rollouts(self, rules: Rules) -> Pool:
        """Statistics over the mean rewards of the group's rollouts."""
        table = moments(self.rewards, self.rollout, ddof=0)
        group = np.zeros(self.rollout.size, dtype=np.int64)
        group[self.rollout.codes] = self.group.codes
        used = table.count > 0
        samples = Coding(group[used], self.group.size)
        return Pool.look_up(moments(table.mean[used], samples, ddof=rules.ddof), self.group, rules)

    def among(self, coding: Coding, rules: Rules, values: Floats | None = None) -> Pool:
        """Statistics over the rows that share a class; of `values`, or of the rewards."""
        values = self.rewards if values is None else values
        return Pool.look_up(moments(values, coding, ddof=rules.ddof), coding, rules)

    def agent_group(self) -> Coding:
        """One agent's share of one group."""
        return pair(self.group, self.agent)


def read_rules(options: Mapping[str, Any]) -> Rules:
    """The rules among the keyword options.

    Raises:
        TypeError: If there is an option that does not exist.
        TrainingInputError: If a value cannot be used.
    """
    names = [field.name for field in fields(Rules)]
    unknown = [name for name in options if name not in names and name not in ROW_OPTIONS]
    if unknown:
        raise TypeError(
            f"unknown option {unknown[0]!r}; expected one of: {', '.join([*names, *ROW_OPTIONS])}; check the spelling"
        )
    return Rules(**{name: options[name] for name in names if name in options})


def read_rows(
    rewards: ArrayLike,
    groups: Ids,
    agents: Ids,
    rollouts: Ids,
    *,
    turns: Ids | None = None,
    anchors: Ids | None = None,
    step_returns: ArrayLike | None = None,
) -> Rows:
    """The rows behind the arrays a caller has.

    Raises:
        TrainingInputError: If lengths differ, an array has more than one dimension, or a number is not finite.
    """
    values = _numbers(rewards, "rewards")
    size = values.size
    group = encode(groups, "groups", size)[0]
    steps = None if step_returns is None else _numbers(step_returns, "step_returns")
    if steps is not None and steps.size != size:
        raise TrainingInputError(
            f"step_returns has {steps.size} entries for {size} rewards", "one per row", "build both from the same turns"
        )
    return Rows(
        rewards=values,
        group=group,
        agent=encode(agents, "agents", size)[0],
        rollout=pair(group, encode(rollouts, "rollouts", size)[0]),
        turns=None if turns is None else encode(turns, "turns", size)[0],
        anchors=None if anchors is None else encode(anchors, "anchors", size)[0],
        step_returns=steps,
    )


def _numbers(values: ArrayLike, name: str) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise TrainingInputError(f"{name} is not an array of numbers ({err})", "[R] floats", f"convert {name}") from err
    if array.ndim != 1:
        raise TrainingInputError(
            f"{name} has the shape {array.shape}", "one dimension, one number per turn", f"flatten {name}"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise TrainingInputError(
            f"{name}[{bad[0]}] is {array[bad[0]]} ({bad.size} in all are not finite)",
            "finite numbers",
            "drop the rollout or repair its reward before computing advantages",
        )
    return array


def _expect(is_met: bool, name: str, value: object, expected: str, advice: str) -> None:
    if not is_met:
        raise TrainingInputError(f"{name} is {value!r}", expected, advice)
