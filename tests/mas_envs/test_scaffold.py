"""`mas-envs new` writes a package that installs, passes the checker and trains."""

import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from mas_envs.cli import build_app
from mas_envs.errors import BadArgumentError
from mas_envs.scaffold import write_package
from tests.installed_package import install_in_fresh_environment, mas_envs_command


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The interpreter of an environment with the generated package, and the package's folder."""
    folder = tmp_path_factory.mktemp("scaffold")
    package = write_package("my_team", folder / "my_team")
    return install_in_fresh_environment(package, folder / "venv"), package


def test_installed_package_is_listed_and_passes_the_checker(installed: tuple[Path, Path]) -> None:
    listed = mas_envs_command(installed[0], "list")
    assert "my_team/MyTeam-v0" in listed.stdout, listed.stderr
    checked = mas_envs_command(installed[0], "check", "my_team/MyTeam-v0")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "passed: 0 errors, 0 warnings, 1 checks skipped" in checked.stdout  # nothing is private


def test_tests_of_the_generated_package_pass(installed: tuple[Path, Path]) -> None:
    python, package = installed
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", str(package / "tests")], capture_output=True, text=True, timeout=300
    )
    assert "2 passed" in done.stdout, done.stdout


def test_generated_recipe_trains(installed: tuple[Path, Path], tmp_path: Path) -> None:
    python, package = installed
    recipe = yaml.safe_load((package / "train.yaml").read_text())
    recipe.update(iterations=2, threads=1)
    recipe["warm_start"].update(num_episodes=60, steps=20, spoiled={})
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(recipe))
    code = "import typer; from trainers.cli import train; app = typer.Typer(); app.command()(train); app()"
    run = tmp_path / "run"
    command = [str(python), "-c", code, str(tmp_path / "short.yaml"), "--run-dir", str(run), "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / "report.html").is_file()


def test_environment_of_the_template_is_under_sixty_lines(tmp_path: Path) -> None:
    package = write_package("my_other_team", tmp_path / "other")
    source = (package / "src" / "my_other_team" / "env.py").read_text()
    assert source[source.index("class ") :].count("\n") < 60


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My-Team", "expected lower-case words joined by underscores"),
        ("", "expected lower-case words joined by underscores"),
        ("../evil", "expected lower-case words joined by underscores"),
        ("class", "is a word of Python's own"),
        ("json", "is taken by a module that is installed here"),
        ("mas_envs", "is taken by a module that is installed here"),
    ],
)
def test_name_that_cannot_be_used_is_refused_and_writes_nothing(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadArgumentError, match=message):
        write_package(name, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(BadArgumentError, match="exists already; choose another name"):
        write_package("my_team", tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_command_says_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(build_app(), ["new", "my_team"])
    assert result.exit_code == 0, result.output
    assert "mas-envs check my_team/MyTeam-v0" in result.output
    assert (tmp_path / "my_team" / "pyproject.toml").is_file()
