"""The learner's gradients, norms and refusals."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers.tiny_team import env_pool, tiny_policy, tiny_seats
from trainers.batch import TrainingRow, training_batch
from trainers.config import AlgorithmSettings, PolicySettings
from trainers.learner import Learner
from trainers.losses import policy_loss
from trainers.rollout import EpisodeStart, collect_rollouts
from trainers.team import LanguagePolicy


@pytest.fixture(scope="module")
def policy(tiny_folder: Path) -> LanguagePolicy:
    return tiny_policy(tiny_folder)


@pytest.fixture(scope="module")
def rows(policy: LanguagePolicy) -> tuple[TrainingRow, ...]:
    starts = [EpisodeStart(f"r{i}", f"g{i // 4}", i // 4) for i in range(16)]
    rollouts = collect_rollouts(starts, env_pool(), tiny_seats(policy), seed=3)
    return training_batch(rollouts, frozenset({"team"}), weights={}).rows


def learner(
    model: Any, *, token_budget: int = 4096, algorithm: AlgorithmSettings | None = None, **policy: Any
) -> Learner:
    return Learner(
        model,
        PolicySettings(**{"lr": 1e-2, "max_grad_norm": None, **policy}),
        algorithm or AlgorithmSettings(),
        total_updates=10,
        token_budget=token_budget,
        temperature=1.0,
        max_completion_tokens=6,
    )


def advantages_of(rows: tuple[TrainingRow, ...]) -> Any:
    return np.random.default_rng(0).normal(size=len(rows))


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    "aggregation", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
)
@pytest.mark.parametrize("num_updates", [1, 3])
def test_weights_do_not_depend_on_how_rows_are_cut(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...], aggregation: Any, num_updates: int
) -> None:
    results = []
    for budget in (1, 64, 100_000):
        model = copy.deepcopy(policy.model)
        algorithm = AlgorithmSettings(aggregation=aggregation, num_updates=num_updates)
        learner(model, token_budget=budget, algorithm=algorithm, lr=1e-3).update(rows, advantages_of(rows), seed=1)
        results.append(weights(model))
    assert not torch.equal(results[0], weights(policy.model))
    assert torch.allclose(results[0], results[1], atol=1e-6)
    assert torch.allclose(results[0], results[2], atol=1e-6)


def test_gradient_is_that_of_the_plain_policy_loss(policy: LanguagePolicy, rows: tuple[TrainingRow, ...]) -> None:
    values = advantages_of(rows)
    model = copy.deepcopy(policy.model)
    report = learner(model).update(rows, values, seed=1)
    plain = copy.deepcopy(policy.model)
    width = max(len(row.completion_ids) for row in rows)
    logprobs, mask = torch.zeros(len(rows), width), torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        scores = torch.log_softmax(plain(ids).logits[0, :-1], -1)
        chosen = scores.gather(-1, ids[0, 1:, None]).squeeze(-1)[len(row.prompt_ids) - 1 :]
        logprobs[index, : len(chosen)] = chosen
        mask[index, : len(chosen)] = True
    policy_loss(logprobs, logprobs.detach(), torch.tensor(values, dtype=torch.float32), mask).loss.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.get_total_norm([p.grad for p in plain.parameters() if p.grad is not None])
    assert report.grad_norms == pytest.approx([float(norm)], rel=1e-4)


def test_norm_of_each_agent_is_that_of_its_own_rows_when_agents_share_a_model(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...]
) -> None:
    values = advantages_of(rows)
    shared = learner(copy.deepcopy(policy.model)).update(rows, values, seed=1)
    alone = np.where([row.agent_id == "verifier_0" for row in rows], values, 0.0)
    expected = learner(copy.deepcopy(policy.model)).update(rows, alone, seed=1)
    assert shared.agents.keys() == {"solver_0", "verifier_0"}
    assert shared.agents["verifier_0"].grad_norms == pytest.approx(expected.grad_norms, rel=1e-4)
    assert shared.grad_norms[0] <= sum(agent.grad_norms[0] for agent in shared.agents.values()) + 1e-6


def test_engine_and_learner_agree_on_logprobs(policy: LanguagePolicy, rows: tuple[TrainingRow, ...]) -> None:
    report = learner(copy.deepcopy(policy.model)).update(rows, advantages_of(rows), seed=1)
    assert all(agent.engine_gap < 1e-4 for agent in report.agents.values())
    assert all(agent.entropy > 0.0 for agent in report.agents.values())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_update_with_a_number_that_is_not_finite_is_skipped(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...], bad: float
) -> None:
    model = copy.deepcopy(policy.model)
    values = advantages_of(rows)
    values[0] = bad
    report = learner(model).update(rows, values, seed=1)
    assert report.skipped == 1
    assert torch.equal(weights(model), weights(policy.model))


class Memory:
    """Lets a model fail as CUDA does when a forward pass has more tokens than `limit`."""

    def __init__(self, model: Any, limit: int) -> None:
        self.largest, self.num_failures = 0, 0
        self._limit = limit
        model.get_decoder().register_forward_pre_hook(self._check, with_kwargs=True)

    def _check(self, module: Any, arguments: Any, keywords: dict[str, torch.Tensor]) -> None:
        tokens = keywords["input_ids"].numel()
        if tokens > self._limit:
            self.num_failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.largest = max(self.largest, tokens)


@pytest.mark.parametrize("num_updates", [1, 2], ids=["gradient", "old-logprobs"])
def test_memory_that_runs_out_halves_the_microbatch_and_changes_no_weight(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...], caplog: pytest.LogCaptureFixture, num_updates: int
) -> None:
    roomy, tight = copy.deepcopy(policy.model), copy.deepcopy(policy.model)
    algorithm = AlgorithmSettings(num_updates=num_updates)
    learner(roomy, algorithm=algorithm, lr=1e-3).update(rows, advantages_of(rows), seed=1)
    memory = Memory(tight, limit=60)
    trained = learner(tight, token_budget=120, algorithm=algorithm, lr=1e-3)
    trained.update(rows, advantages_of(rows), seed=1)
    assert (trained.token_budget, memory.num_failures) == (60, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory: going on with token_budget=60; set it to that to avoid this"
    ]
    torch.testing.assert_close(weights(tight), weights(roomy), atol=1e-6, rtol=0.0)
    trained.update(rows, advantages_of(rows), seed=2)
    assert memory.num_failures == 1


def test_a_single_row_that_does_not_fit_is_an_error(policy: LanguagePolicy, rows: tuple[TrainingRow, ...]) -> None:
    model = copy.deepcopy(policy.model)
    Memory(model, limit=3)
    with pytest.raises(torch.OutOfMemoryError):
        learner(model).update(rows, advantages_of(rows), seed=1)


def test_no_rows_and_no_advantages_are_survived(policy: LanguagePolicy, rows: tuple[TrainingRow, ...]) -> None:
    model = copy.deepcopy(policy.model)
    assert learner(model).update([], np.zeros(0), seed=1).grad_norms == []
    report = learner(model, weight_decay=0.0).update(rows, np.zeros(len(rows)), seed=1)
    assert report.grad_norms == [0.0]
    assert torch.equal(weights(model), weights(policy.model))


def test_gradient_is_clipped_to_the_limit(policy: LanguagePolicy, rows: tuple[TrainingRow, ...]) -> None:
    model = copy.deepcopy(policy.model)
    clipped = learner(model, max_grad_norm=1e-8, weight_decay=0.0, lr=1e-3)
    report = clipped.update(rows, advantages_of(rows), seed=1)
    moments = [state["exp_avg"] for state in clipped.optimizer.state.values()]
    assert report.grad_norms[0] > 1e-3
    assert float(torch.nn.utils.get_total_norm(moments)) == pytest.approx(0.1 * 1e-8, rel=1e-2)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.5, 1.0, 1.0, 1.0]), ("linear", [0.5, 0.9, 0.8, 0.7]), ("cosine", [0.5, 0.976, 0.905, 0.794])],
)
def test_learning_rate_follows_the_schedule(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...], schedule: str, expected: list[float]
) -> None:
    trained = learner(copy.deepcopy(policy.model), schedule=schedule, warmup_updates=2, lr=1e-3)
    rates = [trained.update(rows[:2], np.array([1.0, -1.0]), seed=1).lr / 1e-3 for _ in range(4)]
    assert rates == pytest.approx(expected, abs=1e-3)


def test_optimizer_state_survives_saving(policy: LanguagePolicy, rows: tuple[TrainingRow, ...], tmp_path: Path) -> None:
    first_model = copy.deepcopy(policy.model)
    first = learner(first_model, schedule="linear")
    first.update(rows, advantages_of(rows), seed=1)
    first.save(tmp_path / "optimizer.safetensors")
    second_model = copy.deepcopy(first_model)
    second = learner(second_model, schedule="linear")
    second.load(tmp_path / "optimizer.safetensors", first.num_updates)
    first.update(rows, advantages_of(rows), seed=2)
    second.update(rows, advantages_of(rows), seed=2)
    assert torch.equal(weights(first_model), weights(second_model))


def trained(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...], watch: Any = lambda model: None, **settings: Any
) -> tuple[Any, float]:
    """The model after one update, and the gradient norm."""
    model = copy.deepcopy(policy.model)
    watch(model)
    report = learner(model, learner=settings, lr=1e-3).update(rows, advantages_of(rows), seed=1)
    return model, report.grad_norms[0]


def test_gradient_checkpointing_computes_layers_twice_and_changes_nothing(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...]
) -> None:
    calls = {False: 0, True: 0}
    results = {}
    for is_on in calls:

        def count(*_: Any, is_on: bool = is_on) -> None:
            calls[is_on] += 1

        model, norm = trained(
            policy,
            rows,
            lambda model: model.model.layers[0].mlp.register_forward_pre_hook(count),  # called at once
            gradient_checkpointing=is_on,
        )
        results[is_on] = weights(model), norm
    assert calls[True] == 2 * calls[False]
    assert torch.allclose(results[True][0], results[False][0], atol=1e-6)
    assert results[True][1] == pytest.approx(results[False][1], rel=1e-5)


def test_autocast_computes_in_bfloat16_over_float32_weights(
    policy: LanguagePolicy, rows: tuple[TrainingRow, ...]
) -> None:
    seen = set()

    def watch(model: Any) -> None:
        model.model.layers[0].mlp.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))

    model, norm = trained(policy, rows, watch, autocast="bfloat16")
    assert seen == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert norm == pytest.approx(trained(policy, rows)[1], rel=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_compiled_layers_give_the_same_weights(policy: LanguagePolicy, rows: tuple[TrainingRow, ...]) -> None:
    plain, compiled = copy.deepcopy(policy.model), copy.deepcopy(policy.model)
    learner(plain, lr=1e-3).update(rows, advantages_of(rows), seed=1)
    learner(compiled, lr=1e-3, learner={"compile": True}, engine={"kind": "vllm"}).update(
        rows, advantages_of(rows), seed=1
    )
    assert torch.allclose(weights(plain), weights(compiled), atol=1e-5)
