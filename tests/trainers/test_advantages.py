"""Advantages against the reference vectors, ids of every kind, and bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainers.advantages import ESTIMATORS, AdvantageOptions, advantage_report, compute_advantages
from trainers.grouping import Ids

LINES = (Path(__file__).parents[1] / "golden" / "advantages.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES[1:]]
SCHEMES = {
    "grpo/global/std": "grpo",
    "grpo/global/nostd": "dr_grpo",
    "grpo/agent/std": "drmas",
    "grpo/agent/nostd": "drmas_nostd",
    "rloo/global": "rloo",
    "rloo/agent": "drmas_rloo",
    "ablation/agent_mean_global_std": "drmas_mean",
    "ablation/global_mean_agent_std": "drmas_std",
    "ablation/global_rows": "grpo_rows",
}


def run(case: dict[str, Any], scheme: str, ddof: int, rows: list[int]) -> list[float]:
    picked = [[case[name][row] for row in rows] for name in ("reward", "group", "agent", "trajectory")]
    rewards, groups, agents, rollouts = picked
    result = compute_advantages(rewards, groups, agents, rollouts, SCHEMES[scheme], eps=case["epsilon"], ddof=ddof)
    return [float(value) for value in result]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_every_scheme_reproduces_its_reference_vector(case: dict[str, Any]) -> None:
    everything = list(range(len(case["reward"])))
    for scheme, expected in case["expected"].items():
        assert run(case, scheme, 1, everything) == pytest.approx(expected["float64"], abs=1e-6, rel=1e-6), scheme
        if "float64_population_std" in expected:
            paper = expected["float64_population_std"]
            assert run(case, scheme, 0, everything) == pytest.approx(paper, abs=1e-6, rel=1e-6), scheme


@pytest.mark.parametrize("case", [case for case in CASES if case["copies"]], ids=lambda case: case["id"])
def test_rows_without_their_copies_give_the_recommended_values(case: dict[str, Any]) -> None:
    distinct = [row for row in range(len(case["reward"])) if row not in case["copies"]]
    for scheme, expected in case["expected"].items():
        wanted = [expected["float64_without_copies"][row] for row in distinct]
        assert run(case, scheme, 1, distinct) == pytest.approx(wanted, abs=1e-6), scheme


def test_the_vectors_hold_every_scheme_and_both_deviations() -> None:
    assert len(CASES) == 69
    assert all(set(case["expected"]) == set(SCHEMES) for case in CASES)


REWARDS = [1.0, 0.0, 0.5, 0.25]


@pytest.mark.parametrize(
    ("groups", "agents", "rollouts"),
    [
        (["q"] * 4, ["a", "a", "b", "b"], ["0", "1", "0", "1"]),
        ([("q", 1)] * 4, [None, None, ("b",), ("b",)], [0, "1", 0, "1"]),
        (np.array([7] * 4), np.array(["a", "a", "b", "b"]), np.array([10**12, -5, 10**12, -5])),
        (np.array([1.5] * 4), np.array([0, 0, 1, 1], dtype=np.uint8), np.array([0, 1, 0, 1], dtype=object)),
        (torch.zeros(4, dtype=torch.int64), [False, False, True, True], [0, 1, 0, 1]),
        ((3, 3, 3, 3), "a a b b".split(), (b"0", b"1", b"0", b"1")),
    ],
    ids=["strings", "tuples-and-None", "arrays", "odd-arrays", "tensor-and-bools", "bytes"],
)
def test_ids_of_every_kind_mean_the_same(groups: Ids, agents: Ids, rollouts: Ids) -> None:
    expected = [0.7071, -0.7071, 0.7071, -0.7071]
    assert compute_advantages(REWARDS, groups, agents, rollouts) == pytest.approx(expected, abs=1e-4)


def test_ids_that_join_to_the_same_text_do_not_collide() -> None:
    groups, agents = ["q_1", "q", "q_1", "q"], ["x", "1_x", "x", "1_x"]
    assert compute_advantages([1.0, 5.0, 0.0, 9.0], groups, agents, [0, 1, 2, 3], "drmas_nostd").tolist() == [
        0.5,
        -2.0,
        -0.5,
        2.0,
    ]


def test_a_rollout_id_may_return_in_another_group() -> None:
    result = compute_advantages([1.0, 0.0, 4.0, 8.0], ["p", "p", "q", "q"], ["a"] * 4, [0, 1, 0, 1], "dr_grpo")
    assert result.tolist() == [0.5, -0.5, -2.0, 2.0]


def test_unequal_rows_of_a_rollout_share_the_mean_of_their_rewards() -> None:
    result = compute_advantages([1.0, 0.5, 0.25], ["q"] * 3, ["a", "b", "a"], [0, 0, 1], "dr_grpo")
    assert result.tolist() == [0.25, 0.25, -0.25]


@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_no_rows_give_no_advantages(estimator: str) -> None:
    result = compute_advantages([], [], [], [], estimator)
    assert result.shape == (0,)
    assert result.dtype == np.float64
    assert advantage_report([], [], [], [], estimator).is_kept.shape == (0,)


def test_at_grpo_compares_an_agent_with_itself_at_the_same_turn() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0]
    result = compute_advantages(rewards, ["q"] * 4, ["a"] * 4, [0, 1, 0, 1], "at_grpo", turns=[0, 0, 2, 2])
    assert result == pytest.approx([0.70710578, -0.70710578, 0.70710478, -0.70710478], abs=1e-7)
    at_once = compute_advantages(rewards, ["q"] * 4, ["a"] * 4, [0, 1, 0, 1], "at_grpo", turns=[0, 0, 0, 0])
    assert at_once.tolist() == compute_advantages(rewards, ["q"] * 4, ["a"] * 4, [0, 1, 0, 1]).tolist()


def test_gigpo_adds_the_step_part_of_rows_at_the_same_anchor() -> None:
    # Rollouts score 1 and 0, so +-0.5 without division. At anchor s the returns are 3 and 1, so +-1; t and u are alone.
    options: AdvantageOptions = {"anchors": ["s", "t", "s", "u"], "step_returns": [3.0, 9.0, 1.0, 7.0]}
    half: AdvantageOptions = {**options, "step_weight": 0.5}
    ids = (["q"] * 4, ["a"] * 4, [0, 0, 1, 1])
    plain = compute_advantages([1.0, 1.0, 0.0, 0.0], *ids, "gigpo_nostd", **half)
    assert plain.tolist() == [1.0, 0.5, -1.0, -0.5]
    scaled = compute_advantages([1.0, 1.0, 0.0, 0.0], *ids, "gigpo", **options)
    unit = 0.5**0.5
    assert scaled == pytest.approx([2 * unit, unit, -2 * unit, -unit], abs=1e-5)


def test_gigpo_does_not_compare_two_agents_at_one_anchor() -> None:
    result = compute_advantages(
        [1.0, 0.0], ["q", "q"], ["a", "b"], [0, 1], "gigpo_nostd", anchors=["s", "s"], step_returns=[5.0, 0.0]
    )
    assert result.tolist() == [0.5, -0.5]


GOOD: dict[str, Any] = {"rewards": [1.0, 0.0], "groups": ["q", "q"], "agents": ["a", "a"], "rollouts": [0, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ["q"]}, r"groups has 1 entries for 2 rewards; expected one entry per row .*; build groups from"),
        ({"agents": ["a"] * 3}, r"agents has 3 entries for 2 rewards"),
        ({"rollouts": []}, r"rollouts has 0 entries for 2 rewards"),
        (
            {"rewards": [1.0, np.nan]},
            r"rewards\[1\] is nan \(1 in all are not finite\); expected finite numbers; drop the rollout",
        ),
        ({"rewards": [np.inf, np.nan]}, r"rewards\[0\] is inf \(2 in all are not finite\)"),
        ({"rewards": [[1.0, 0.0]]}, r"rewards has the shape \(1, 2\); expected one dimension.*; flatten rewards"),
        ({"rewards": ["x", "y"]}, r"rewards is not an array of numbers .*; expected \[R\] floats; convert rewards"),
        ({"groups": np.zeros((2, 1))}, r"groups has the shape \(2, 1\); expected one dimension.*; flatten groups"),
        ({"groups": "qq"}, r"groups is the text 'qq'; expected a sequence, one id per row; pass \['qq', ...\]"),
        ({"groups": [["q"], ["q"]]}, r"groups holds an id that cannot be hashed .*; convert groups first"),
        ({"groups": [float("nan"), "q"]}, r"groups holds a NaN; expected an id for every row; name the missing"),
        ({"estimator": "drmass"}, r"unknown estimator 'drmass'; expected one of: drmas, .*; did you mean 'drmas'"),
        ({"estimator": "zzz"}, r"unknown estimator 'zzz'; .*; or register your own estimator first"),
        ({"lone": "keep"}, r"lone is 'keep'; expected one of \('reward', 'zero', 'drop', 'formula'\); pick one"),
        ({"eps": 0.0}, r"eps is 0.0; expected a positive number; leave it at 1e-6"),
        ({"ddof": 2}, r"ddof is 2; expected 0 or 1; use 1 for the published code"),
        ({"min_std": -1.0}, r"min_std is -1.0; expected None or a number >= 0; use 0.0"),
        ({"on_zero_std": "x"}, r"on_zero_std is 'x'; expected one of \('zero', 'group'\); pick one"),
        ({"step_weight": np.inf}, r"step_weight is inf; expected a finite number; use 1.0"),
        ({"estimator": "at_grpo"}, r"'at_grpo' got no turns; expected one entry of turns per row; pass turns="),
        ({"estimator": "gigpo"}, r"'gigpo' got no anchors; expected one entry of anchors per row; pass anchors="),
        ({"estimator": "gigpo_nostd"}, r"'gigpo_nostd' got no anchors"),
        ({"turns": [1]}, r"turns has 1 entries for 2 rewards"),
        ({"step_returns": [1.0]}, r"step_returns has 1 entries for 2 rewards; expected one per row; build both"),
    ],
)
def test_bad_input_says_what_was_wrong_what_was_expected_and_what_to_do(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_advantages(**{**GOOD, **change})


def test_an_unknown_option_is_named() -> None:
    change: dict[str, Any] = {**GOOD, "epsilon": 1e-6}
    with pytest.raises(
        TypeError, match=r"unknown option 'epsilon'; expected one of: eps, ddof, .*; check the spelling"
    ):
        compute_advantages(**change)
