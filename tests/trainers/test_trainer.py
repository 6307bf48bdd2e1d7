"""A run from start to end: what it leaves, how it goes on, how it stops."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file

from tests.trainers.tiny_team import tiny_settings
from trainers.algorithm import normalise
from trainers.config import SettingsError
from trainers.trained_team import TrainedTeam
from trainers.trainer import Callback, Trainer, TrainingDiverged, TrainingInterrupted


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: without_times(value) if isinstance(value, dict) else value
        for key, value in record.items()
        if key != "seconds"
    }


def final_weights(run_dir: Path) -> dict[str, bytes]:
    newest = sorted((run_dir / "checkpoints").glob("iteration-*"))[-1]
    return {
        f"{path.relative_to(newest)}/{name}": value.tobytes()
        for path in sorted(newest.rglob("*.safetensors"))
        for name, value in load_file(path).items()
    }


def test_run_directory_holds_all_that_was_promised(tiny_folder: Path, tmp_path: Path) -> None:
    result = Trainer(tiny_settings(tiny_folder), tmp_path / "run").train()
    run = tmp_path / "run"
    assert yaml.safe_load((run / "settings.yaml").read_text())["iterations"] == 4
    assert [record["iteration"] for record in records(run, "iteration")] == [1, 2, 3, 4]
    assert [record["iteration"] for record in records(run, "evaluation")] == [0, 2, 4]
    assert result.before is not None
    assert list((run / "tensorboard").iterdir())
    assert "<html" in result.report.read_text()[:400]
    transcripts = (run / "transcripts" / "iteration-000001.jsonl").read_text().splitlines()
    turn = json.loads(transcripts[0])["turns"][0]
    assert {"text", "reward_terms", "reward", "advantage", "completion_tokens", "seconds"} <= turn.keys()
    agent = records(run, "iteration")[0]["agents"]["solver_0"]
    assert agent["num_turns"] >= 12
    assert {"grad_norm", "advantage_rms", "inflation", "entropy", "clip_frac", "engine_gap"} <= agent.keys()


class StopAfter(Callback):
    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_iteration(self, trainer: Trainer, record: Any) -> None:
        if record["iteration"] == self.iteration:
            trainer.stop()


def teams(folder: Path) -> dict[str, dict[str, Any]]:
    policy = {"model": str(folder), "lr": 1e-3, "sampling": {"max_tokens": 8}}
    adapter = {**policy, "lora": {"rank": 2}}
    return {
        "separate": {},
        "shared": {"policies": {"team": policy}, "agents": {"solver": "team", "verifier": "team"}},
        "adapters": {
            "policies": {"solver": adapter, "verifier": adapter},
            "algorithm": {"kl": {"coef": 0.1}, "num_updates": 2},
        },
        "frozen": {"policies": {"solver": policy, "verifier": {**policy, "frozen": True}}},
        "dynamic sampling": {"algorithm": {"dynamic_sampling": {"enabled": True}}},
        "all extras": {
            "algorithm": {
                "kl": {"coef": 0.1, "estimate": "k2"},
                "entropy_coef": 0.01,
                "importance": {"mode": "truncate"},
                "overlong": {"buffer": 2},
                "num_updates": 2,
            }
        },
    }


@pytest.mark.parametrize("team", ["separate", "shared", "adapters", "frozen", "dynamic sampling", "all extras"])
def test_n_steps_straight_equal_half_and_resume_bit_for_bit(tiny_folder: Path, tmp_path: Path, team: str) -> None:
    changes = teams(tiny_folder)[team]
    Trainer(tiny_settings(tiny_folder, **changes), tmp_path / "straight").train()
    halved = Trainer(tiny_settings(tiny_folder, **changes), tmp_path / "halved", callbacks=[StopAfter(2)])
    with pytest.raises(TrainingInterrupted, match=r"stopped after iteration 2; go on with: mas-envs train --resume"):
        halved.train()
    Trainer.resume(tmp_path / "halved").train()
    assert final_weights(tmp_path / "halved") == final_weights(tmp_path / "straight")
    straight = [without_times(record) for record in records(tmp_path / "straight", "iteration")]
    assert [without_times(record) for record in records(tmp_path / "halved", "iteration")] == straight


def test_adapters_share_one_copy_of_the_base_and_learn_apart(tiny_folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(tiny_settings(tiny_folder, **teams(tiny_folder)["adapters"]), tmp_path / "run")
    trainer.train()
    assert trainer.team is not None
    solver, verifier = trainer.team.policies["solver"], trainer.team.policies["verifier"]
    assert solver.model is verifier.model
    before = load_file(tiny_folder / "model.safetensors")
    base = {
        name.replace(".base_layer.", "."): value for name, value in solver.model.get_base_model().state_dict().items()
    }
    assert all((base[name].numpy() == before[name]).all() for name in before)
    own = [policy.trained_parameters() for policy in (solver, verifier)]
    assert own[0].keys().isdisjoint(own[1])
    for parameters in own:
        assert any(bool(value.detach().any()) for name, value in parameters.items() if "lora_B" in name)


@pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)  # the plain peft user's call
def test_one_agent_can_be_taken_out_as_an_ordinary_folder(tiny_folder: Path, tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    Trainer(tiny_settings(tiny_folder, iterations=1), tmp_path / "full").train()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "full" / "best" / "solver")
    assert model.config.model_type == "qwen3"
    Trainer(tiny_settings(tiny_folder, iterations=1, **teams(tiny_folder)["adapters"]), tmp_path / "lora").train()
    adapted = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "lora" / "best" / "verifier")
    assert adapted.active_adapter == "default"


def test_dynamic_sampling_trains_on_varied_groups_only(tiny_folder: Path, tmp_path: Path) -> None:
    settings = tiny_settings(tiny_folder, **teams(tiny_folder)["dynamic sampling"])
    Trainer(settings, tmp_path / "run").train()
    for record in records(tmp_path / "run", "iteration"):
        assert 1 <= record["num_groups"] <= 3
        assert record["dropped_groups"] >= 0
    assert sum(record["dropped_groups"] for record in records(tmp_path / "run", "iteration")) > 0


def test_updates_that_are_not_finite_stop_the_run_with_advice(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny_settings(tiny_folder, algorithm={"max_bad_updates": 2})
    trainer = Trainer(settings, tmp_path / "run")

    def poisoned(algorithm: Any, batch: Any) -> Any:
        report = normalise(algorithm, batch)
        report.advantages[:] = float("nan")
        return report

    monkeypatch.setattr("trainers.trainer.normalise", poisoned)
    with pytest.raises(TrainingDiverged, match=r"not finite in 2 iterations in a row.*lower lr"):
        trainer.train()
    saved = json.loads((tmp_path / "run" / "bad_batches" / "iteration-000001.json").read_text())
    assert {"prompt_ids", "completion_ids", "behaviour_logprobs", "reward", "advantage"} <= saved[0].keys()
    names = [alarm["name"] for record in records(tmp_path / "run", "iteration") for alarm in record["alarms"]]
    assert "not_finite" in names


def test_estimators_give_different_weights_from_the_same_rollouts(tiny_folder: Path, tmp_path: Path) -> None:
    results = {}
    for estimator in ("drmas", "grpo"):
        settings = tiny_settings(tiny_folder, algorithm={"estimator": estimator}, iterations=1)
        Trainer(settings, tmp_path / estimator).train()
        results[estimator] = final_weights(tmp_path / estimator)
    assert results["drmas"] != results["grpo"]


def test_frozen_policy_acts_and_does_not_move(tiny_folder: Path, tmp_path: Path) -> None:
    policy = {"model": str(tiny_folder), "lr": 1e-3, "sampling": {"max_tokens": 8}}
    settings = tiny_settings(
        tiny_folder, policies={"solver": policy, "verifier": {**policy, "frozen": True}}, iterations=2
    )
    Trainer(settings, tmp_path / "run").train()
    before = load_file(tiny_folder / "model.safetensors")
    newest = sorted((tmp_path / "run" / "checkpoints").glob("iteration-*"))[-1]
    frozen, trained = (load_file(newest / name / "model.safetensors") for name in ("verifier", "solver"))
    assert all((frozen[name] == before[name]).all() for name in before)
    assert any((trained[name] != before[name]).any() for name in before)
    agents = records(tmp_path / "run", "iteration")[0]["agents"]
    assert agents["verifier_0"]["num_turns"] > 0
    assert "grad_norm" not in agents["verifier_0"]


def test_directory_with_a_run_is_not_overwritten(tiny_folder: Path, tmp_path: Path) -> None:
    Trainer(tiny_settings(tiny_folder, iterations=0), tmp_path / "run").train()
    with pytest.raises(SettingsError, match=r"already holds a run; go on with it by `mas-envs train --resume"):
        Trainer(tiny_settings(tiny_folder), tmp_path / "run")


def test_resume_of_no_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"holds no run \(no settings.yaml\)"):
        Trainer.resume(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agents": {"solver": "solver", "judge": "verifier"}}, r"agents.judge is neither a role nor an agent"),
        ({"agents": {"solver": "solver", "solver_0": "verifier"}}, r"the agent 'verifier_0' has no policy"),
    ],
)
def test_wrong_assignment_fails_before_any_model_loads(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Trainer(tiny_settings("/no/such/model", **changes), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ({"estimator": "drmass"}, "algorithm.estimator: .*'drmass'.*did you mean 'drmas'"),
        ({"loss": "pppo"}, "algorithm.loss: .*'pppo'.*did you mean 'ppo'"),
        ({"reward_terms": ["brevity"]}, "algorithm.reward_terms: .*'brevity'"),
    ],
)
def test_a_name_that_is_not_registered_is_refused_before_any_model_loads(
    tmp_path: Path, name: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        Trainer(tiny_settings("no-such-model", algorithm=name), tmp_path / "run")


def test_missing_model_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"policies.solver.model='/no/such/model' cannot be loaded"):
        Trainer(tiny_settings("/no/such/model"), tmp_path / "run").train()


def test_full_disk_at_a_checkpoint_does_not_end_the_run(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tiny_settings(tiny_folder), tmp_path / "run")
    save = TrainedTeam.save

    def fills_up(team: TrainedTeam, folder: Path) -> None:
        if trainer.iteration == 2:
            raise OSError(28, "No space left on device")
        save(team, folder)

    monkeypatch.setattr(TrainedTeam, "save", fills_up)
    trainer.train()
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["iteration-000000", "iteration-000004"]


def start_process(tiny_folder: Path, run_dir: Path, iterations: int) -> subprocess.Popen[str]:
    settings = tiny_settings(
        tiny_folder, iterations=iterations, checkpoint={"every": 1}, evaluation={"num_tasks": 2, "every": 0}
    )
    recipe = run_dir.parent / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    code = "import typer; from trainers.cli import train; app = typer.Typer(); app.command()(train); app()"
    command = [sys.executable, "-c", code, str(recipe), "--run-dir", str(run_dir), "--no-open"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for_checkpoint(run_dir: Path, process: subprocess.Popen[str], iteration: int) -> None:
    deadline = time.monotonic() + 120
    while not list((run_dir / "checkpoints").glob(f"iteration-*{iteration}")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_was_killed_ends_bit_for_bit_as_one_that_was_not(tiny_folder: Path, tmp_path: Path) -> None:
    killed, straight = tmp_path / "killed", tmp_path / "straight"
    with start_process(tiny_folder, killed, iterations=24) as process:
        wait_for_checkpoint(killed, process, 2)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    trainer = Trainer.resume(killed)
    assert 2 <= trainer.iteration < 24
    trainer.train()
    Trainer(trainer.settings, straight).train()
    assert final_weights(killed) == final_weights(straight)
    expected = [without_times(record) for record in records(straight, "iteration")]
    assert [without_times(record) for record in records(killed, "iteration")] == expected


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tiny_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "stopped"
    with start_process(tiny_folder, run, iterations=500) as process:
        wait_for_checkpoint(run, process, 1)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert f"go on with: mas-envs train --resume {run}" in output
    last = records(run, "iteration")[-1]["iteration"]
    assert (run / "checkpoints" / f"iteration-{last:06d}").is_dir()


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_team_trains_with_recomputed_layers_in_bfloat16(tiny_folder: Path, tmp_path: Path, lora: Any) -> None:
    policy = {"model": str(tiny_folder), "lr": 1e-3, "sampling": {"max_tokens": 8}, "lora": lora}
    policy["learner"] = {"gradient_checkpointing": True, "autocast": "bfloat16"}
    settings = tiny_settings(
        tiny_folder, policies={"team": policy}, agents={"solver": "team", "verifier": "team"}, iterations=2
    )
    Trainer(settings, tmp_path / "run").train()
    first, last = records(tmp_path / "run", "iteration")
    assert first["agents"]["solver_0"]["grad_norm"] > 0.0
    assert last["policies"]["team"]["skipped_updates"] == 0
