"""What holds for the advantages of any batch."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import ESTIMATORS, AdvantageOptions, compute_advantages
from trainers.grouping import Floats

ALL = list(ESTIMATORS)
SCALED = ["drmas", "drmas_mean", "drmas_std", "grpo", "grpo_rows", "at_grpo", "gigpo"]
UNSCALED = [name for name in ALL if name not in SCALED]


@dataclass(frozen=True)
class Batch:
    rewards: Floats
    groups: list[int]
    agents: list[int]
    rollouts: list[tuple[int, int]]
    turns: list[int]
    anchors: list[int]

    def advantages(self, estimator: str, **options: object) -> Floats:
        extras: AdvantageOptions = {"turns": self.turns, "anchors": self.anchors, **options}  # type: ignore[typeddict-item]
        return compute_advantages(self.rewards, self.groups, self.agents, self.rollouts, estimator, **extras)

    def pick(self, order: list[int]) -> "Batch":
        return Batch(
            rewards=self.rewards[order],
            groups=[self.groups[index] for index in order],
            agents=[self.agents[index] for index in order],
            rollouts=[self.rollouts[index] for index in order],
            turns=[self.turns[index] for index in order],
            anchors=[self.anchors[index] for index in order],
        )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Up to 30 rows of up to 3 groups and agents; rewards in quarters, so that ties and equal groups are common."""
    size = draw(st.integers(1, 30))

    def column(high: int) -> list[int]:
        return draw(st.lists(st.integers(0, high), min_size=size, max_size=size))

    groups = column(2)
    return Batch(
        rewards=np.array(column(4)) / 4.0,
        groups=groups,
        agents=column(2),
        rollouts=list(zip(groups, column(3), strict=True)),
        turns=column(1),
        anchors=column(2),
    )


@given(batches())
def test_drmas_sums_to_zero_in_every_agent_group(batch: Batch) -> None:
    for estimator in ("drmas", "drmas_nostd", "drmas_rloo", "drmas_mean"):
        advantages = batch.advantages(estimator, lone="zero")
        sums: dict[tuple[int, int], float] = {}
        for key, advantage in zip(zip(batch.groups, batch.agents, strict=True), advantages, strict=True):
            sums[key] = sums.get(key, 0.0) + advantage
        assert list(sums.values()) == pytest.approx([0.0] * len(sums), abs=1e-9)


@given(batches())
def test_grpo_sums_to_zero_over_the_rollouts_of_every_group(batch: Batch) -> None:
    for estimator in ("grpo", "dr_grpo", "rloo"):
        advantages = batch.advantages(estimator, lone="zero")
        of_rollout = dict(zip(batch.rollouts, advantages, strict=True))
        assert [of_rollout[rollout] for rollout in batch.rollouts] == advantages.tolist()
        for group in set(batch.groups):
            total = sum(value for rollout, value in of_rollout.items() if rollout[0] == group)
            assert total == pytest.approx(0.0, abs=1e-9)


@given(batches(), st.sampled_from(ALL), st.integers(-8, 8))
def test_a_shift_of_all_rewards_changes_nothing(batch: Batch, estimator: str, shift: int) -> None:
    options = {"lone": "zero", "min_std": 0.0}
    shifted = replace(batch, rewards=batch.rewards + shift / 4.0).advantages(estimator, **options)
    assert shifted == pytest.approx(batch.advantages(estimator, **options), abs=1e-9)


@given(batches(), st.sampled_from(ALL), st.sampled_from([0.01, 0.5, 3.0, 1000.0]))
def test_a_scale_passes_through_without_division_and_vanishes_with_it(
    batch: Batch, estimator: str, scale: float
) -> None:
    options = {"lone": "zero", "min_std": 1e-5, "eps": 1e-9}
    scaled = replace(batch, rewards=batch.rewards * scale).advantages(estimator, **options)
    factor = scale if estimator in UNSCALED else 1.0
    assert scaled == pytest.approx(batch.advantages(estimator, **options) * factor, rel=1e-5, abs=1e-6 * factor)


@given(batches(), st.sampled_from(ALL), st.randoms(use_true_random=False))
def test_rows_in_another_order_get_their_values_in_that_order(batch: Batch, estimator: str, random: object) -> None:
    order = list(range(batch.rewards.size))
    random.shuffle(order)  # type: ignore[attr-defined]
    permuted = batch.pick(order).advantages(estimator, min_std=0.0)
    assert permuted == pytest.approx(batch.advantages(estimator, min_std=0.0)[order], abs=1e-9)


@given(batches(), st.sampled_from(ALL), st.sampled_from([0.9, 0.1, -0.3, 7.7]))
def test_equal_rewards_are_exactly_zero_whatever_the_grouping(batch: Batch, estimator: str, reward: float) -> None:
    flat = replace(batch, rewards=np.full(batch.rewards.size, reward))
    assert flat.advantages(estimator, lone="zero").tolist() == [0.0] * batch.rewards.size


@given(batches(), st.sampled_from(ALL))
def test_names_of_groups_agents_and_rollouts_do_not_matter(batch: Batch, estimator: str) -> None:
    renamed = compute_advantages(
        batch.rewards,
        [("group", str(-group)) for group in batch.groups],
        [frozenset([agent]) for agent in batch.agents],
        [f"{group}_{rollout}" for group, rollout in batch.rollouts],
        estimator,
        turns=[turn * 10**9 - 7 for turn in batch.turns],
        anchors=np.array([str(anchor) for anchor in batch.anchors]),
    )
    assert renamed.tolist() == batch.advantages(estimator).tolist()


@given(batches())
def test_the_two_deviations_differ_by_the_root_of_the_counts(batch: Batch) -> None:
    options = {"lone": "zero", "eps": 1e-12}
    sample, population = (batch.advantages("drmas", ddof=ddof, **options) for ddof in (1, 0))
    keys = list(zip(batch.groups, batch.agents, strict=True))
    counts = np.array([keys.count(key) for key in keys])
    assert population == pytest.approx(sample * np.sqrt(counts / np.maximum(counts - 1, 1)), abs=1e-8)


@given(batches())
def test_one_agent_with_one_turn_per_rollout_makes_agents_and_groups_the_same(batch: Batch) -> None:
    size = batch.rewards.size
    single = replace(batch, agents=[0] * size, rollouts=[(group, row) for row, group in enumerate(batch.groups)])
    reference = single.advantages("grpo").tolist()
    for estimator in ("drmas", "drmas_mean", "drmas_std", "grpo_rows"):
        assert single.advantages(estimator).tolist() == reference


@given(batches(), st.sampled_from(ALL), st.sampled_from(["reward", "zero", "drop", "formula"]))
def test_the_guard_bounds_every_advantage(batch: Batch, estimator: str, lone: str) -> None:
    advantages = batch.advantages(estimator, lone=lone, min_std=0.0, on_zero_std="group")
    assert np.isfinite(advantages).all()
    assert np.abs(advantages).max() < 60.0  # rewards in [0, 1], deviations of at least about 0.02
