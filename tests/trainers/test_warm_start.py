"""Demonstrations, cloning, and going down to a mediocre level."""

import json
import math
from pathlib import Path

import pytest
from transformers import AutoConfig

import mas_envs
from adapters.llm import EnvironmentFailure
from mas_envs import Skill
from mas_envs.conversation import ConversationEnv, Outcome
from mas_envs.errors import MasEnvsError
from mas_envs.math_loop.env import MathLoopEnv
from tests.trainers.tiny_team import env_pool, make_env, tiny_policy, tiny_seats, tiny_settings
from trainers.config import SettingsError, WarmStartSettings
from trainers.demonstrations import collect_demonstrations
from trainers.evaluate import evaluate
from trainers.trainer import Trainer
from trainers.warm_start import clone, spoil, tokenise


def test_target_says_what_is_right_where_the_behaviour_went_wrong() -> None:
    found = collect_demonstrations(make_env(), 40, seed=0, behaviour={"solver": Skill(accuracy=0.0)})
    solved = {shown.messages[-1]["content"].count("<solver_0>") for shown in found if shown.role == "solver"}
    assert solved == {0, 1}
    assert {shown.text.rpartition("<verify>")[2] for shown in found if shown.role == "verifier"} == {"reject</verify>"}


def test_demonstrations_repeat_themselves_for_a_seed() -> None:
    assert collect_demonstrations(make_env(), 5, seed=1) == collect_demonstrations(make_env(), 5, seed=1)
    assert collect_demonstrations(make_env(), 5, seed=1) != collect_demonstrations(make_env(), 5, seed=2)


class WithoutExperts(MathLoopEnv):
    scripted_action = ConversationEnv.scripted_action


def test_environment_without_experts_says_so() -> None:
    with pytest.raises(MasEnvsError, match="has no scripted expert for 'solver_0'"):
        collect_demonstrations(WithoutExperts(), 1, seed=0)


class DividesByZero(MathLoopEnv):
    def receive(self, agent_id: str, text: str) -> Outcome:
        raise ZeroDivisionError("on purpose")


def test_environment_that_fails_under_experts_is_named_with_its_line() -> None:
    with pytest.raises(EnvironmentFailure, match=r"math_loop_v0 failed while .* turn of solver_0, task .*:\d+$"):
        collect_demonstrations(DividesByZero(), 1, seed=0)


def test_cloning_lowers_the_loss_and_is_the_same_for_a_seed(tiny_folder: Path) -> None:
    settings = WarmStartSettings(steps=40, batch_size=32, lr=1e-2)
    losses: list[list[float]] = []
    for _ in range(2):
        policy = tiny_policy(tiny_folder)
        pairs = tokenise(collect_demonstrations(make_env(), 50, seed=0), policy.codec)
        losses.append([])
        clone(policy.model, pairs, settings, seed=0, on_step=lambda _, loss: losses[-1].append(loss))
    assert losses[0] == losses[1]
    assert sum(losses[0][-5:]) < sum(losses[0][:5])


def test_spoiling_stops_at_the_measured_level(tiny_folder: Path) -> None:
    policy = tiny_policy(tiny_folder)
    pairs = tokenise(collect_demonstrations(make_env(), 20, seed=0), policy.codec)
    measured = iter([0.9, 0.6, 0.3, 0.1])
    settings = WarmStartSettings(spoil_until=0.35, max_spoil_steps=100, batch_size=8)
    assert spoil(policy.model, pairs, settings, lambda: next(measured), seed=0) == 0.3
    assert next(measured) == 0.1


def test_tiny_model_without_a_warm_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a model of 'tiny' knows nothing; add a 'warm_start' section"):
        Trainer(tiny_settings("tiny"), tmp_path / "run").train()


def test_policies_may_start_from_tiny_models_of_different_size(tmp_path: Path) -> None:
    size = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 1, "num_heads": 2}
    small = {"model": "tiny", "sampling": {"max_tokens": 10}}
    settings = tiny_settings(
        "tiny",
        policies={"large": {**small, "tiny_model": {**size, "hidden_size": 48}}, "one": small, "two": small},
        agents={"solver": "large", "verifier_0": "one", "verifier": "two"},
        tiny_model=size,
        warm_start={"num_episodes": 60, "steps": 3},
        iterations=1,
    )
    settings = settings.model_copy(update={"agents": {"solver": "large", "verifier": "one"}})
    Trainer(settings, tmp_path / "run").train()
    folders = json.loads((tmp_path / "run" / "models" / "starting.json").read_text())
    assert folders["one"] == folders["two"] != folders["large"]
    widths = {key: AutoConfig.from_pretrained(folder).hidden_size for key, folder in folders.items()}
    assert widths == {"large": 48, "one": 32, "two": 32}


def test_size_of_a_tiny_model_for_a_model_that_exists_is_refused(tiny_folder: Path) -> None:
    policy = {"model": str(tiny_folder), "tiny_model": {}}
    with pytest.raises(SettingsError, match="tiny_model is for model=tiny, and the model is"):
        tiny_settings(tiny_folder, policies={"solver": policy, "verifier": policy})


@pytest.mark.slow
def test_reinforcement_learning_lifts_success_by_forty_points(tmp_path: Path) -> None:
    from trainers.config import load_settings

    result = Trainer(load_settings("math-tiny", ["seed=0"]), tmp_path / "run").train()
    assert result.before is not None
    assert result.after.overall.avg_at_k - result.before.overall.avg_at_k >= 0.4


def test_trained_team_beats_its_warm_start_in_a_short_run(tmp_path: Path) -> None:
    warm = {"num_episodes": 800, "steps": 120, "batch_size": 64, "lr": 8e-3, "behaviour": {"solver": {"accuracy": 0.5}}}
    size = {"hidden_size": 48, "intermediate_size": 96, "num_layers": 2, "num_heads": 4}
    policy = {"model": "tiny", "lr": 1e-3, "sampling": {"max_tokens": 10}}
    settings = tiny_settings(
        "tiny",
        policies={"solver": policy, "verifier": policy},
        tiny_model=size,
        warm_start=warm,
        iterations=25,
        rollout={"num_groups": 12, "group_size": 8},
        evaluation={"num_tasks": 90, "every": 0, "n": 2},
    )
    result = Trainer(settings, tmp_path / "run").train()
    assert result.before is not None
    assert result.after.overall.avg_at_k > result.before.overall.avg_at_k + 0.05


def test_clone_of_a_policy_plays_like_the_expert_more_than_before(tiny_folder: Path) -> None:
    policy = tiny_policy(tiny_folder, max_tokens=10)
    tasks = mas_envs.load_tasks({"name": "arithmetic", "level": 1})[:60]

    def success() -> float:
        policy.sync()
        return evaluate(tasks, env_pool(), tiny_seats(policy), n=1, seed=0)[0].overall.avg_at_k

    before = success()
    pairs = tokenise(collect_demonstrations(make_env(), 400, seed=0), policy.codec)
    loss = clone(policy.model, pairs, WarmStartSettings(steps=150, batch_size=64, lr=1e-2), seed=0)
    assert math.isfinite(loss)
    assert success() > before + 0.1
