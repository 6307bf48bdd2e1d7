"""The training commands: train, eval, report."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from mas_envs.errors import MissingExtraError
from tests.trainers.tiny_team import tiny_settings
from trainers.cli import report, train
from trainers.config import SettingsError, load_settings
from trainers.evaluate_command import evaluate
from trainers.export_command import export
from trainers.run_record import RunRecordError
from trainers.trainer import Trainer

RUNNER = CliRunner()


def app() -> typer.Typer:
    command = typer.Typer()
    command.command("train")(train)
    command.command("eval")(evaluate)
    command.command("export")(export)
    command.command("report")(report)
    return command


def succeed(*arguments: object) -> str:
    result = RUNNER.invoke(app(), [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def recipe(tiny_folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(tiny_settings(tiny_folder, iterations=2).model_dump(mode="json")))
    return path


def test_train_eval_and_report_work_on_one_run(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = RUNNER.invoke(app(), ["train", str(recipe), "estimator=grpo", "--run-dir", str(run), "--no-open"])
    assert trained.exit_code == 0, trained.output
    assert "Held-out success:" in trained.output
    assert yaml.safe_load((run / "settings.yaml").read_text())["algorithm"]["estimator"] == "grpo"
    measured = RUNNER.invoke(
        app(), ["eval", str(run), "--n", "4", "--num-tasks", "3", "--json", str(tmp_path / "e.json")]
    )
    assert measured.exit_code == 0, measured.output
    assert "pass@4" in measured.output
    assert json.loads((tmp_path / "e.json").read_text())["num_tasks"] == 3
    (run / "report.html").unlink()
    assert RUNNER.invoke(app(), ["report", str(run)]).exit_code == 0
    assert (run / "report.html").is_file()


def test_run_directories_are_numbered(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert RUNNER.invoke(app(), ["train", str(recipe), "iterations=0", "--no-open"]).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["test-1", "test-2"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["train"], SettingsError, "no recipe given; expected one of"),
        (["train", "math-tiny", "--resume", "x"], SettingsError, "--resume goes on with the settings of x"),
        (["train", "math-tiny", "estimatr=grpo"], SettingsError, "did you mean 'algorithm.estimator'"),
        (["eval", "nowhere"], SettingsError, "nowhere holds no run, and no model of that name can be had"),
        (["eval", "."], SettingsError, ". holds no run (no settings.yaml) and no model (no config.json)"),
        (["eval", ".", "--prices", "none.yaml"], SettingsError, "--prices none.yaml: cannot be read"),
        (["report", "nowhere"], RunRecordError, "nowhere holds no run"),
    ],
)
def test_wrong_use_is_one_clear_error(arguments: list[str], error: type[Exception], message: str) -> None:
    result = RUNNER.invoke(app(), arguments)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)


def test_missing_extra_is_one_sentence_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = RUNNER.invoke(app(), ["train", "math-tiny"])
    assert isinstance(result.exception, MissingExtraError)
    assert str(result.exception) == "training needs torch; pip install 'mas-envs[train]'"


def logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        values: torch.Tensor = torch.log_softmax(model.eval()(input_ids=torch.tensor([ids])).logits, dim=-1)
    return values


def test_runs_and_models_are_measured_side_by_side_with_their_cost(recipe: Path, tmp_path: Path) -> None:
    run, table = tmp_path / "run", tmp_path / "prices.yaml"
    succeed("train", recipe, "--run-dir", run, "--no-open")
    succeed("export", run, "solver_0", "--out", tmp_path / "solver")
    table.write_text("solver: {prompt: 1.0, completion: 3.0}\nmodel: 2.0\n", encoding="utf-8")
    shown = succeed(
        "eval", run, tmp_path / "solver", "--tasks", "arithmetic", "--n", 2, "--num-tasks", 2, "--max-tokens", 8,
        "--prices", table, "--json", tmp_path / "both.json",
    )  # fmt: skip
    assert "cost" in shown
    ours, plain = json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))
    assert [ours["target"], plain["target"]] == [str(run), str(tmp_path / "solver")]
    use = ours["agents"]["solver_0"]
    assert use["cost"] == pytest.approx((use["prompt_tokens"] + 3 * use["completion_tokens"]) / 1e6)
    assert ours["agents"]["verifier_0"]["cost"] is None
    use = plain["agents"]["verifier_0"]
    assert use["cost"] == pytest.approx(2 * (use["prompt_tokens"] + use["completion_tokens"]) / 1e6)


@pytest.mark.parametrize("what", ["solver_0", "solver"])
def test_an_exported_agent_is_an_ordinary_folder_with_the_runs_weights(recipe: Path, tmp_path: Path, what: str) -> None:
    trainer = Trainer(load_settings(recipe), tmp_path / "run")
    trainer.train()
    shown = succeed("export", tmp_path / "run", what, "--out", tmp_path / "agent")
    assert "the checkpoint of iteration 2 written to" in shown.replace("\n", " ")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "agent")
    assert AutoTokenizer.from_pretrained(tmp_path / "agent").chat_template
    assert trainer.team is not None
    assert torch.equal(logprobs(exported, [5, 6, 7]), logprobs(trainer.team.policies["solver"].model, [5, 6, 7]))
    succeed("export", tmp_path / "run", what, "--out", tmp_path / "best", "--best")


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_exported_adapter_names_its_base_and_merges_into_it(tiny_folder: Path, tmp_path: Path) -> None:
    policy = {"model": str(tiny_folder), "lr": 1e-2, "sampling": {"max_tokens": 8}, "lora": {"rank": 4}}
    trainer = Trainer(tiny_settings(tiny_folder, policies={"solver": policy, "verifier": policy}), tmp_path / "run")
    trainer.train()
    succeed("export", tmp_path / "run", "verifier", "--out", tmp_path / "adapter")
    succeed("export", tmp_path / "run", "verifier", "--out", tmp_path / "merged", "--merge")
    adapted = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert trainer.team is not None
    team = trainer.team.policies["verifier"]
    team.activate()
    torch.testing.assert_close(logprobs(adapted, [5, 6, 7]), logprobs(team.model, [5, 6, 7]))
    torch.testing.assert_close(logprobs(merged, [5, 6, 7]), logprobs(team.model, [5, 6, 7]), atol=1e-5, rtol=1e-5)


def test_an_export_that_cannot_be_made_says_why(recipe: Path, tmp_path: Path) -> None:
    Trainer(load_settings(recipe, ["iterations=0"]), tmp_path / "run").train()
    for arguments, message in (
        (["judge", "--out", "new"], "has no agent 'judge'; expected one of solver, solver_0, verifier, verifier_0"),
        (["solver", "--out", str(tmp_path)], "exists; expected a new folder"),
        (["solver", "--out", "new", "--best"], "has no best evaluation yet; train further first"),
    ):
        result = RUNNER.invoke(app(), ["export", str(tmp_path / "run"), *arguments])
        assert isinstance(result.exception, SettingsError)
        assert message in str(result.exception)
