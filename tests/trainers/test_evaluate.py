"""avg@k, pass@k and intervals."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs import load_tasks
from tests.trainers.tiny_team import env_pool, tiny_policy, tiny_seats
from trainers.evaluate import bootstrap_interval, evaluate, pass_at_k
from trainers.prices import Price


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(num_samples: int, data: st.DataObject) -> None:
    num_correct = data.draw(st.integers(0, num_samples))
    k = data.draw(st.integers(1, num_samples))
    outcomes = [index < num_correct for index in range(num_samples)]
    subsets = list(itertools.combinations(outcomes, k))
    assert pass_at_k(num_samples, num_correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("num_samples", "num_correct", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_undefined_pass_at_k_is_refused(num_samples: int, num_correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="draw more samples per task"):
        pass_at_k(num_samples, num_correct, k)


def test_interval_holds_the_mean_and_narrows_with_more_tasks() -> None:
    few = bootstrap_interval([0.0, 1.0] * 10)
    many = bootstrap_interval([0.0, 1.0] * 500)
    assert few[0] < 0.5 < few[1]
    assert many[1] - many[0] < few[1] - few[0]
    assert bootstrap_interval([0.0, 1.0] * 10) == few


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_interval((rng.random(60) < 0.4).astype(np.float64), resamples=400)
        hits += low <= 0.4 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_evaluation_plays_each_task_n_times_and_counts_use(tiny_folder: object) -> None:
    policy = tiny_policy(tiny_folder)  # type: ignore[arg-type]
    tasks = load_tasks({"name": "arithmetic", "level": 1})[:5]
    result, rollouts = evaluate(tasks, env_pool(), tiny_seats(policy), n=3, seed=1, prices={"team": Price(2.0, 2.0)})
    assert [rollout.task_id for rollout in rollouts] == [task.id for task in tasks for _ in range(3)]
    assert set(result.overall.pass_at_k) == {1, 2, 3}
    assert result.overall.num_tasks == 5
    assert result.by_source.keys() == {"arithmetic-1"}
    solver = result.agents["solver_0"]
    assert solver.turns == sum(turn.agent_id == "solver_0" for rollout in rollouts for turn in rollout.turns)
    assert solver.cost == pytest.approx(2.0 * (solver.prompt_tokens + solver.completion_tokens) / 1e6)


def test_evaluation_repeats_itself_for_a_seed(tiny_folder: object) -> None:
    tasks = load_tasks({"name": "arithmetic", "level": 1})[:4]

    def texts(seed: int) -> list[str]:
        policy = tiny_policy(tiny_folder)  # type: ignore[arg-type]
        _, rollouts = evaluate(tasks, env_pool(), tiny_seats(policy), n=2, seed=seed)
        return [turn.reply.text for rollout in rollouts for turn in rollout.turns]

    assert texts(1) == texts(1) != texts(2)
