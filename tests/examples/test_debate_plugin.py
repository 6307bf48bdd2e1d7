"""The worked example of a plug-in: installed as a package, checked, played and trained."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mas_envs.wrappers import ParallelView
from tests.installed_package import REPOSITORY, install_in_fresh_environment, mas_envs_command

PLUGIN = REPOSITORY / "examples" / "debate_plugin"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_in_fresh_environment(PLUGIN, tmp_path_factory.mktemp("debate") / "venv")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The plug-in's modules, importable for one test."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    for name in ("claims", "debate", "proposers"):
        importlib.import_module(f"mas_envs_debate.{name}")
    yield importlib.import_module("mas_envs_debate")
    for name in [name for name in sys.modules if name.startswith("mas_envs_debate")]:
        del sys.modules[name]


@pytest.mark.parametrize("env_id", ["debate/Debate-v0", "debate/Proposers-v0"])
def test_installed_environment_passes_the_checker(python: Path, env_id: str) -> None:
    done = mas_envs_command(python, "check", env_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout


@pytest.mark.parametrize("recipe", ["debate", "proposers"])
def test_recipe_trains_every_seat(python: Path, recipe: str, tmp_path: Path) -> None:
    settings = yaml.safe_load((PLUGIN / f"{recipe}.yaml").read_text())
    settings.update(iterations=2, threads=1)
    settings["warm_start"].update(num_episodes=60, steps=20, spoiled={})
    settings["evaluation"].update(num_tasks=8)
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(settings))
    code = "import typer; from trainers.cli import train; app = typer.Typer(); app.command()(train); app()"
    run = tmp_path / "run"
    command = [str(python), "-c", code, str(tmp_path / "short.yaml"), "--run-dir", str(run), "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    seats = {"debate": ["debater_0", "debater_1", "judge_0"], "proposers": ["solver_0", "solver_3", "aggregator_0"]}
    record = (run / "metrics.jsonl").read_text().splitlines()[-2]
    assert all(f'"{seat}"' in record for seat in seats[recipe])


def test_debaters_play_against_each_other_and_the_judge_for_the_truth(plugin: Any) -> None:
    env = plugin.debate.DebateEnv(tasks=plugin.claims.claims(size=8))
    env.reset(seed=0)
    env.step("I am right")
    env.step("No, I am")
    env.step(f"<verdict>{1 - env.right_side}</verdict>")
    assert env.rewards == {f"debater_{1 - env.right_side}": 1.0, f"debater_{env.right_side}": -1.0, "judge_0": 0.0}


def test_solvers_do_not_see_each_other_and_may_speak_in_one_step(plugin: Any) -> None:
    view = ParallelView(plugin.proposers.ProposersEnv(tasks=plugin.claims.claims(size=8), num_solvers=3))
    view.reset(seed=0)
    assert view.active_agents == ["solver_0", "solver_1", "solver_2"]
    answer = view.env.unwrapped.task.answer
    said = {"solver_0": f"\\boxed{{{answer}}}", "solver_1": "nothing", "solver_2": "\\boxed{99}"}
    _, rewards, *_ = view.step(said)
    assert rewards["solver_0"] == 1.0
    assert rewards["solver_1"] == pytest.approx(-0.1)
    assert rewards["solver_2"] == 0.0
    observations, *_ = view.step({"aggregator_0": f"\\boxed{{{answer}}}"})
    assert f"{answer}, ?, 99" in observations["aggregator_0"]["messages"][0]["content"]
