"""Agent-wise normalisation inside RLlib's PPO, against RLlib's own and against our trainer's; no Ray is started."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="needs mas-envs[rllib]")

from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.evaluation.postprocessing import Postprocessing

from adapters.rllib import AgentWisePPOLearner, TokenModule, ppo_config, small_sums, standardised_by_agent, success_frac
from mas_envs.errors import BadArgumentError
from tests.adapters.relay import Beat, all_end
from tests.adapters.rllib.relays import PHRASES, relay_config, runner_of
from trainers import compute_advantages

UNEQUAL_PAY = [
    Beat("a_0", {"b_0": 10}),
    Beat("b_0", {"a_0": 1, "b_0": 3}),
    Beat("a_0", {"a_0": -1}),
    Beat("b_0", {"b_0": 12}, {"b_0": "truncated"}),
    Beat("a_0", {"a_0": 2}),
    Beat("a_0", {}, {"a_0": "terminated"}),
]


class Recording:
    """A learner that keeps the batches its loss is computed on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: dict[str, Any] = {}

    def compute_loss_for_module(self, *, module_id: str, batch: Any, **kwargs: Any) -> Any:
        self.seen[module_id] = {key: value.detach().clone() for key, value in batch.items()}
        return super().compute_loss_for_module(module_id=module_id, batch=batch, **kwargs)  # type: ignore[misc]


class AgentWise(Recording, AgentWisePPOLearner):
    pass


class Stock(Recording, PPOTorchLearner):
    pass


def learner_of(config: Any, runner: Any) -> Any:
    return config.build_learner(env=None, spaces=runner.get_spaces())


def update(learner: Any, episodes: list[Any], *, num_epochs: int = 1, minibatch_size: int | None = None) -> None:
    learner.update(
        training_data=TrainingData(episodes=episodes),
        timesteps={"num_env_steps_sampled_lifetime": 0},
        num_epochs=num_epochs,
        minibatch_size=minibatch_size,
        shuffle_batch_per_epoch=minibatch_size is not None,
    )


def both(shared: bool) -> list[dict[str, np.ndarray[Any, Any]]]:
    """By module: what RLlib and what we make of the same episodes, and whose the rows are."""
    config = ppo_config(relay_config(UNEQUAL_PAY), shared=shared).training(gamma=0.9, lambda_=0.8)
    runner = runner_of(config)
    episodes = [chunk for _ in range(10) for chunk in runner.sample(num_timesteps=20)]
    ours = learner_of(config.copy(copy_frozen=False).learners(learner_class=AgentWise), runner)
    stock = learner_of(config.copy(copy_frozen=False).learners(learner_class=Stock), runner)
    stock.module.set_state(ours.module.get_state())
    update(ours, copy.deepcopy(episodes))  # an update changes its episodes
    update(stock, episodes)
    assert ours.seen.keys() == stock.seen.keys() == ({"team"} if shared else {"a", "b"})
    found = []
    for module_id, rows in ours.seen.items():
        other = stock.seen[module_id]
        assert torch.equal(rows[Columns.OBS], other[Columns.OBS])
        found.append(
            {
                "ours": rows[Postprocessing.ADVANTAGES].numpy(),
                "stock": other[Postprocessing.ADVANTAGES].numpy(),
                "is_real": rows[Columns.LOSS_MASK].bool().numpy(),
                "agents": np.array([PHRASES[seen[0] - 2] for seen in rows[Columns.OBS].tolist()]),
            }
        )
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_advantages_are_those_of_our_trainer_on_the_same_numbers(shared: bool) -> None:
    for rows in both(shared):
        real, count = rows["is_real"], int(rows["is_real"].sum())
        expected = compute_advantages(
            rows["stock"][real],
            ["whole batch"] * count,
            rows["agents"][real],
            range(count),
            "drmas",
            ddof=0,
            eps=1e-12,
        )
        assert rows["ours"][real] == pytest.approx(expected, abs=1e-4)
        assert set(rows["agents"]) == ({"a_0", "b_0"} if shared else {rows["agents"][0]})


def test_rllib_mixes_agents_of_one_policy_and_we_do_not() -> None:
    (rows,) = both(shared=True)
    for agent_id in ("a_0", "b_0"):
        own = rows["is_real"] & (rows["agents"] == agent_id)
        assert abs(rows["stock"][own].mean()) > 0.5
        assert rows["ours"][own].mean() == pytest.approx(0.0, abs=1e-5)
        assert rows["ours"][own].std() == pytest.approx(1.0, abs=1e-4)


def test_rows_that_rllib_adds_do_not_count() -> None:
    for rows in both(shared=False):
        assert not rows["is_real"].all()
        assert not rows["ours"][~rows["is_real"]].any()
        assert abs(rows["stock"][rows["is_real"]].mean()) > 0.05  # RLlib standardises its own rows along


@given(
    values=st.lists(st.tuples(st.integers(-40, 40), st.sampled_from("abc"), st.booleans()), min_size=1, max_size=30),
)
def test_standardising_by_agent_is_that_of_our_trainer(values: list[tuple[int, str, bool]]) -> None:
    numbers = np.array([number / 8 for number, _, _ in values])
    agents = [agent for _, agent, _ in values]
    is_real = np.array([real for _, _, real in values])
    ours = standardised_by_agent(torch.tensor(numbers), agents, torch.tensor(is_real)).numpy()
    real = np.flatnonzero(is_real)
    expected = compute_advantages(
        numbers[real],
        [0] * len(real),
        [agents[index] for index in real],
        range(len(real)),
        ddof=0,
        eps=1e-12,
        lone="zero",
    )
    assert ours[real] == pytest.approx(expected, abs=1e-6)
    assert not ours[~is_real].any()


class Stateful(TokenModule):
    def get_initial_state(self) -> dict[str, Any]:
        return {"h": np.zeros(1, np.float32)}

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {**super()._forward(batch, **kwargs), Columns.STATE_OUT: batch[Columns.STATE_IN]}


def test_stateful_modules_are_refused() -> None:
    config = ppo_config(relay_config([Beat("a_0"), Beat("b_0", {}, all_end())]))
    spec = RLModuleSpec(module_class=Stateful, model_config={"max_seq_len": 4})
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"a": spec, "b": spec}))
    runner = runner_of(config)
    learner = learner_of(config, runner)
    with pytest.raises(
        BadArgumentError, match=r"module '[ab]' is stateful: RLlib pads its rows .*; use a module without"
    ):
        update(learner, runner.sample(num_timesteps=16))


@pytest.mark.parametrize("shared", [False, True])
def test_both_agents_learn_tiny_sums(shared: bool) -> None:
    env_config = small_sums(largest=1)
    config = ppo_config(env_config, shared=shared).debugging(seed=0).training(lr=3e-3)
    runner = runner_of(config)
    learner = learner_of(config, runner)

    def module_of(agent_id: str) -> Any:
        return learner.module["team" if shared else agent_id.removesuffix("_0")]

    before = success_frac(module_of, env_config, num_episodes=100)
    for _ in range(6):
        update(learner, runner.sample(num_timesteps=512), num_epochs=4, minibatch_size=128)
        runner.set_state({"rl_module": learner.module.get_state(inference_only=True)})
    after = success_frac(module_of, env_config, num_episodes=100)
    assert after > before + 0.4
