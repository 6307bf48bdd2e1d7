"""The training commands: train, eval, report."""

import json
import sys
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from mas_envs.errors import MissingExtraError
from tests.trainers.tiny_team import tiny_settings
from trainers.cli import evaluate, report, train
from trainers.config import SettingsError
from trainers.run_record import RunRecordError

RUNNER = CliRunner()


def app() -> typer.Typer:
    command = typer.Typer()
    command.command("train")(train)
    command.command("eval")(evaluate)
    command.command("report")(report)
    return command


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
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["short-1", "short-2"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["train"], SettingsError, "no recipe given; expected one of"),
        (["train", "math-tiny", "--resume", "x"], SettingsError, "--resume goes on with the settings of x"),
        (["train", "math-tiny", "estimatr=grpo"], SettingsError, "did you mean 'algorithm.estimator'"),
        (["eval", "nowhere"], SettingsError, "nowhere holds no run"),
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
