"""The figures per agent, and the lemma behind the predicted inflation."""

from dataclasses import asdict

import numpy as np
import pytest

from trainers.advantages import AgentAdvantageStats, advantage_report, advantage_stats

ROWS = ([1.0, 0.0, 0.0, 0.0, 0.0], ["q"] * 5, ["a", "a", "a", "b", "b"], [0, 1, 2, 1, 2])


def test_figures_of_a_guarded_agent_are_as_counted_by_hand() -> None:
    stats = advantage_stats(*ROWS, advantage_report(*ROWS, "drmas_std", min_std=0.0))
    assert list(stats) == ["a", "b"]
    expected = AgentAdvantageStats(
        num_rows=2,
        advantage_mean=0.0,
        advantage_rms=0.0,
        second_moment=0.0,
        zero_frac=1.0,
        lone_frac=0.0,
        zero_std_frac=1.0,
        guarded_frac=1.0,
        reward_mean=0.0,
        reward_std=0.0,
        predicted_inflation=0.5,  # (0 + (1/3)^2) / (2/9)
        predicted_second_moment=0.25,  # (0 + 0.2^2) / 0.16
    )
    assert asdict(stats["b"]) == pytest.approx(asdict(expected))
    assert stats["a"].predicted_inflation == pytest.approx(1.0)
    assert stats["a"].reward_mean == pytest.approx(1 / 3)
    assert stats["a"].reward_std == pytest.approx(2**0.5 / 3)


def test_lone_rows_are_counted() -> None:
    rows = ([1.0, 0.0, 1.0], ["q"] * 3, ["a", "a", "b"], [0, 1, 1])
    stats = advantage_stats(*rows, advantage_report(*rows))
    assert stats["b"].lone_frac == 1.0
    assert stats["b"].advantage_rms == pytest.approx(1.0, abs=1e-5)
    assert stats["a"].lone_frac == 0.0
    assert stats["a"].zero_frac == 0.0


def test_the_predicted_inflation_is_the_second_moment_under_the_group() -> None:
    generator = np.random.default_rng(3)
    rollouts = generator.integers(0, 8, 40)
    rewards = generator.normal(size=8)[rollouts]
    rows = (rewards, ["q"] * 40, generator.integers(0, 3, 40), rollouts)
    stats = advantage_stats(*rows, advantage_report(*rows, "grpo", ddof=0, eps=1e-12))
    for each in stats.values():
        assert each.second_moment == pytest.approx(each.predicted_inflation, rel=1e-6)
        assert each.second_moment == pytest.approx(each.advantage_rms**2)
    assert len({round(each.second_moment, 6) for each in stats.values()}) == 3


def test_with_one_success_the_inflation_reaches_one_less_than_the_group() -> None:
    rows = ([1.0, 0.0, 0.0, 0.0, 0.0, 1.0], ["q"] * 6, ["a"] * 5 + ["b"], [0, 1, 2, 3, 4, 0])
    assert advantage_stats(*rows, advantage_report(*rows))["b"].predicted_inflation == pytest.approx(4.0)


def test_the_inflation_is_averaged_over_the_groups_that_define_it() -> None:
    rewards = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 1.0, 0.0, 0.0]
    groups = ["p"] * 6 + ["flat"] * 3 + ["q"] * 3
    agents = ["a"] * 5 + ["b"] + ["a", "a", "b"] + ["a", "a", "b"]
    rollouts = [0, 1, 2, 3, 4, 0, 0, 1, 1, 0, 1, 1]
    rows = (rewards, groups, agents, rollouts)
    assert advantage_stats(*rows, advantage_report(*rows))["b"].predicted_inflation == pytest.approx((4.0 + 1.0) / 2)


def test_the_inflation_is_none_where_every_group_is_flat() -> None:
    rows = ([1.0, 1.0], ["q", "q"], ["a", "a"], [0, 1])
    assert advantage_stats(*rows, advantage_report(*rows))["a"].predicted_inflation is None


def test_no_rows_have_no_agents() -> None:
    assert advantage_stats([], [], [], [], advantage_report([], [], [], [])) == {}


def test_a_report_of_other_rows_is_refused() -> None:
    report = advantage_report([1.0], ["q"], ["a"], [0])
    with pytest.raises(
        ValueError, match=r"the report has 1 rows for 5 rewards; expected the report of these very rows"
    ):
        advantage_stats(*ROWS, report)


@pytest.mark.parametrize("seed", range(5))
def test_the_lemma_predicts_the_second_moment_under_one_baseline_for_all_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 4, 200)
    agents = rng.choice(["solver_0", "verifier_0", "refiner_0"], 200, p=[0.5, 0.45, 0.05])
    rewards = rng.integers(0, 2, 200) - 0.7 * (agents == "refiner_0")
    rollouts = [f"{group}/{n}" for n, group in enumerate(groups)]
    report = advantage_report(rewards, groups, agents, rollouts, "grpo_rows", ddof=0, eps=1e-12)
    for stats in advantage_stats(rewards, groups, agents, rollouts, report).values():
        assert stats.second_moment == pytest.approx(stats.predicted_second_moment, rel=1e-6)


def test_a_zero_sum_split_has_no_inflation_and_not_an_enormous_one() -> None:
    rewards = (
        [0.15, 0.19, 0.02, 0.20] + [0.12, 0.08, 0.25, 0.07] + [1.1] * 4
    )  # every rollout's mean is the same on paper
    rows = (rewards, ["q"] * 12, ["b"] * 4 + ["s"] * 4 + ["m"] * 4, [0, 1, 2, 3] * 3)
    assert advantage_stats(*rows, advantage_report(*rows))["b"].predicted_inflation is None
