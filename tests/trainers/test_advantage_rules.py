"""The three rules that all estimators share, and estimators that users register."""

from dataclasses import fields

import numpy as np
import pytest

from trainers.advantages import (
    ESTIMATORS,
    AdvantageOptions,
    AdvantageReport,
    Lone,
    Rows,
    Rules,
    advantage_report,
    compute_advantages,
    register_estimator,
    standardise,
)
from trainers.grouping import Floats
from trainers.rows import ROW_OPTIONS

PLAIN = [name for name in ESTIMATORS if name not in ("at_grpo", "gigpo", "gigpo_nostd")]


def test_options_are_the_rules_and_the_row_arrays() -> None:
    assert set(AdvantageOptions.__annotations__) == {field.name for field in fields(Rules)} | set(ROW_OPTIONS)


@pytest.mark.parametrize("estimator", list(ESTIMATORS))
@pytest.mark.parametrize("reward", [0.9, 0.3, -0.1, 1e9 + 0.1])
@pytest.mark.parametrize("ddof", [0, 1])
def test_equal_rewards_give_exactly_zero(estimator: str, reward: float, ddof: int) -> None:
    agents, rollouts = ["a", "b"] * 8, [index // 4 for index in range(16)]
    result = advantage_report(
        [reward] * 16, ["q"] * 16, agents, rollouts, estimator, ddof=ddof, turns=[0] * 16, anchors=["s"] * 16
    )
    assert result.advantages.tolist() == [0.0] * 16
    assert result.has_zero_std.all()
    assert not result.is_guarded.any()


def test_equal_rewards_give_exactly_zero_with_unequal_turn_counts() -> None:
    rollouts = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2]
    for estimator in PLAIN:
        result = compute_advantages([0.9] * 11, ["q"] * 11, ["a"] * 11, rollouts, estimator)
        assert result.tolist() == [0.0] * 11, estimator


# One agent alone in a group of two rollouts: b acts once.
LONE = ([1.0, 0.0, 0.5], ["q"] * 3, ["a", "a", "b"], [0, 1, 1])


@pytest.mark.parametrize(
    ("estimator", "lone", "expected"),
    [
        ("drmas", "reward", 0.5),
        ("drmas", "zero", 0.0),
        ("drmas", "drop", 0.0),
        ("drmas", "formula", 0.0),
        ("drmas_nostd", "reward", 0.5),
        ("drmas_nostd", "zero", 0.0),
        ("drmas_rloo", "reward", 0.5),
        ("drmas_rloo", "zero", 0.0),
        ("drmas_rloo", "formula", 0.0),
        ("drmas_mean", "reward", 0.5 / (0.75 / 2**0.5)),  # rollouts score 1 and 0.25
        ("drmas_mean", "zero", 0.0),
        ("drmas_mean", "formula", 0.0),
        ("drmas_std", "reward", 0.5 - 0.625),
        ("drmas_std", "zero", 0.0),
        ("drmas_std", "formula", (0.5 - 0.625) / 1e-6),
        ("grpo_rows", "zero", 0.0),
    ],
)
def test_a_lone_sample_follows_one_rule_in_every_estimator(estimator: str, lone: Lone, expected: float) -> None:
    report = advantage_report(*LONE, estimator, lone=lone)
    assert report.advantages[2] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert report.is_lone.tolist() == [False, False, estimator != "grpo_rows"]
    assert report.is_kept.tolist() == [True, True, lone != "drop"]


@pytest.mark.parametrize("estimator", PLAIN)
@pytest.mark.parametrize("lone", ["zero", "drop"])
def test_a_single_row_in_all_gets_nothing_under_zero_and_drop(estimator: str, lone: Lone) -> None:
    report = advantage_report([0.7], ["q"], ["a"], [0], estimator, lone=lone, min_std=0.0)
    assert report.advantages.tolist() == [0.0]
    assert report.is_lone.all()
    assert report.is_kept.tolist() == [lone != "drop"]
    assert not report.is_guarded.any()


def test_a_lone_row_that_is_muted_as_such_is_not_counted_as_guarded() -> None:
    report = advantage_report(*LONE, "drmas_std", lone="zero", min_std=0.0)
    assert report.advantages[2] == 0.0
    assert not report.is_guarded.any()


def test_the_default_for_lone_samples_goes_with_the_deviation() -> None:
    assert compute_advantages(*LONE)[2] == pytest.approx(0.5, abs=1e-6)
    assert compute_advantages(*LONE, ddof=0)[2] == 0.0
    assert compute_advantages(*LONE, ddof=0, lone="reward")[2] == pytest.approx(0.5, abs=1e-6)


# An agent without variance of its own in a group that has some: b acts in the failures only.
EXPLODING = ([1.0, 0.0, 0.0, 0.0, 0.0], ["q"] * 5, ["a", "a", "a", "b", "b"], [0, 1, 2, 1, 2])


def test_an_agent_without_variance_explodes_without_a_guard() -> None:
    report = advantage_report(*EXPLODING, "drmas_std")
    assert report.advantages[3] == pytest.approx(-1e6 / 3)
    assert report.has_zero_std.tolist() == [False] * 3 + [True] * 2
    assert not report.is_guarded.any()


def test_the_guard_mutes_an_agent_without_variance() -> None:
    report = advantage_report(*EXPLODING, "drmas_std", min_std=0.0)
    assert report.advantages[3:].tolist() == [0.0, 0.0]
    assert report.is_guarded.tolist() == [False] * 3 + [True] * 2
    free = advantage_report(*EXPLODING, "drmas_std")
    assert report.advantages[:3].tolist() == free.advantages[:3].tolist()


def test_the_guard_falls_back_to_the_deviation_of_the_group() -> None:
    report = advantage_report(*EXPLODING, "drmas_std", min_std=0.0, on_zero_std="group")
    assert report.advantages[3:] == pytest.approx([-0.57735] * 2, abs=1e-5)  # (0 - 1/3) / 0.57735, as grpo has it
    assert report.advantages[3:].tolist() == compute_advantages(*EXPLODING, "grpo")[3:].tolist()
    assert report.is_guarded.tolist() == [False] * 3 + [True] * 2


def test_the_guard_covers_a_lone_agent_in_a_group_without_variance() -> None:
    rows = ([0.5, 0.5, 0.5], ["q"] * 3, ["a", "a", "b"], [0, 1, 1])
    assert compute_advantages(*rows, "drmas_mean")[2] == pytest.approx(5e5)  # mean 0 by decree over a deviation of 0
    report = advantage_report(*rows, "drmas_mean", min_std=0.0, on_zero_std="group")
    assert report.advantages.tolist() == [0.0] * 3
    assert report.is_guarded.tolist() == [False, False, True]


def test_a_threshold_mutes_groups_in_which_only_a_penalty_differs() -> None:
    rows = ([0.0, 0.0, 0.0, -0.01], ["q"] * 4, ["a"] * 4, [0, 1, 2, 3])
    assert compute_advantages(*rows)[3] == pytest.approx(-1.5, abs=1e-3)
    report = advantage_report(*rows, min_std=0.02)
    assert report.advantages.tolist() == [0.0] * 4
    assert report.is_guarded.all()
    assert not report.has_zero_std.any()
    wide = advantage_report(*rows, min_std=0.02, on_zero_std="group")
    assert wide.advantages.tolist() == [0.0] * 4  # the group has no more than the agent


def test_the_fall_back_needs_more_than_one_rollout() -> None:
    rows = ([0.0, 0.01, 1.0], ["q"] * 3, ["a", "a", "b"], [0, 0, 0])
    report = advantage_report(*rows, min_std=0.02, on_zero_std="group")
    assert report.advantages[:2].tolist() == [0.0, 0.0]
    assert report.is_guarded.tolist() == [True, True, False]


def test_a_lone_deviation_of_one_is_not_guarded() -> None:
    report = advantage_report([0.5], ["q"], ["a"], [0], min_std=2.0)
    assert report.advantages == pytest.approx([0.5], abs=1e-6)
    assert not report.is_guarded.any()


def best_of_group(rows: Rows, rules: Rules) -> AdvantageReport:
    everyone = rows.among(rows.group, rules)
    return standardise((rows.rewards > everyone.mean).astype(np.float64), centre=everyone, scale=None, rules=rules)


def test_a_registered_estimator_is_called_by_name_and_a_function_without_one() -> None:
    rows = ([1.0, 0.0], ["q", "q"], ["a", "a"], [0, 1])
    assert compute_advantages(*rows, best_of_group).tolist() == [0.5, -0.5]
    register_estimator("best_of_group")(best_of_group)
    try:
        assert compute_advantages(*rows, "best_of_group").tolist() == [0.5, -0.5]
        with pytest.raises(
            ValueError,
            match=r"the estimator 'best_of_group' exists already; expected a name that is not taken; register",
        ):
            register_estimator("best_of_group")(best_of_group)
    finally:
        del ESTIMATORS["best_of_group"]
    assert "best_of_group" not in ESTIMATORS


def test_a_report_is_finite_for_wild_scales() -> None:
    rewards: Floats = np.array([1e-12, -1e-12, 1e12, -1e12, 3.0, 3.0])
    for estimator in PLAIN:
        report = advantage_report(rewards, ["q"] * 6, ["a", "a", "b", "b", "c", "c"], [0, 1, 0, 1, 0, 1], estimator)
        assert np.isfinite(report.advantages).all(), estimator
