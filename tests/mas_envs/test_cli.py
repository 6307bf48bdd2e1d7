"""The `mas-envs` command: what it shows, and its exit codes in a real process."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mas_envs
from mas_envs import cli
from mas_envs.cli import build_app
from mas_envs.errors import MasEnvsError
from tests.mas_envs.checker.good_envs import OneByOne

RUN = (sys.executable, "-c", "from mas_envs.cli import main; main()")
WIDE = {"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}


@pytest.fixture(autouse=True)
def _own_commands_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    monkeypatch.setattr(cli.console, "width", 160)


def invoke(*arguments: str, typed: str = "") -> str:
    result = CliRunner(env=WIDE).invoke(build_app(), arguments, input=typed, prog_name="mas-envs")
    assert result.exit_code == 0, result.output
    return result.output


def command(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **WIDE, "PYTHONPATH": str(Path.cwd())}
    return subprocess.run((*RUN, *arguments), input=typed, env=environment, capture_output=True, text=True, check=False)


def test_list_shows_every_environment_with_its_agents() -> None:
    shown = invoke("list")
    assert re.search(r"MathLoop-v0\W+solver_0, verifier_0\W+mas_envs", shown)
    assert re.search(r"MathSolo-v0\W+solver_0\W+mas_envs", shown)


def test_info_shows_agents_tasks_arguments_and_the_first_prompt() -> None:
    shown = invoke(
        "info", "MathLoop-v0", "--set", 'tasks={"name": "arithmetic", "level": 5}', "-s", "prompt_style=short"
    )
    assert "solver_0 (solver), verifier_0 (verifier)" in shown
    assert "arithmetic-5-train" in shown
    assert "max_loops=2, reward='team'" in " ".join(shown.replace("│", " ").split())
    assert "invalid_penalty: Charged for each action" in shown
    assert "what solver_0 is shown first (user)" in shown
    assert "Solve " in shown


def test_info_shows_an_environment_that_is_no_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_envs.registry, "_specs", dict(mas_envs.registry._specs))
    mas_envs.register("OneByOne-v0", OneByOne)
    shown = invoke("info", "OneByOne-v0")
    assert "guest_0 (guest), guest_1 (guest), guest_2 (guest)" in shown
    assert "after 0 words" in shown
    assert "first task" not in shown


def test_info_wraps_the_description_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.console, "width", 70)
    shown = invoke("info", "MathLoop-v0")
    assert max(map(len, shown.splitlines())) <= 70
    assert not re.search(r"\n\S{1,12}\n\S", shown)  # no stray words of a line broken twice


def test_person_plays_a_role_against_scripted_mates() -> None:
    shown = invoke("play", "MathLoop-v0", "--as", "solver", "--seed", "1", typed="no box\n\nso\n\\boxed{46}\n\n")
    assert shown.count("solver_0, write your turn; an empty line ends it.") == 2
    assert r"invalid: no \boxed{...} after the thoughts" in shown
    assert shown.count("verifier_0 (scripted)") == 1
    assert "[verify]reject[/verify]" in shown
    assert "Solved. The answer is 46" in shown
    assert re.search(r"solver_0\W+0\.9\W+invalid -0\.1, correct \+1", shown)


def test_person_plays_everybody_without_as() -> None:
    shown = invoke("play", "MathLoop-v0", "--seed", "1", typed="\\boxed{1}\n\n<verify>approve</verify>\n\n")
    assert "scripted" not in shown
    assert "verifier_0 is shown (user)" in shown
    assert "Not solved. The answer is 46" in shown


def test_markup_in_typed_text_is_shown_as_it_is() -> None:
    shown = invoke("play", "MathLoop-v0", "--as", "solver_0", "--seed", "1", typed="[red]x[/red]\n\n\\boxed{46}\n\n")
    assert "[red]x[/red]" in shown


@pytest.mark.parametrize("name", ["list", "info", "play"])
def test_help_of_each_command_has_an_example(name: str) -> None:
    shown = invoke(name, "--help")
    assert f"Usage: mas-envs {name}" in shown
    assert f"Example: mas-envs {name}" in shown


def test_broken_command_of_another_package_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = importlib.metadata.EntryPoint("broken", "no_such_module:run", cli.COMMAND_GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (broken,))
    with pytest.warns(UserWarning, match=r"the command 'broken' \(no_such_module:run\) failed to load and is left out"):
        app = build_app()
    assert "list" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("info", "MathLop-v0"), 2, "Error: no environment 'MathLop-v0'; did you mean 'MathLoop-v0'"),
        (("play", "MathLoop_v0"), 2, "did you mean 'MathLoop-v0'"),
        (("info", "Math Loop"), 2, "Malformed environment ID"),
        (("info", "nowhere:X-v0"), 1, "Error: 'nowhere:X-v0': cannot import 'nowhere'"),
        (
            ("info", "MathLoop-v0", "-s", "max_loop=3"),
            2,
            "does not take the argument 'max_loop'; did you mean 'max_loops'?",
        ),
        (("info", "MathLoop-v0", "-s", "max_loops=0"), 2, "Error: max_loops=0: expected an integer of at least 1"),
        (("info", "MathLoop-v0", "-s", "max_loops"), 2, "expected name=value, such as max_loops=3"),
        (("info", "MathLoop-v0", "-s", "tasks=none.jsonl"), 2, "Error: none.jsonl: no such file; check the path"),
        (("play", "MathLoop-v0", "--as", "bob"), 2, "'bob' is neither an agent nor a role of MathLoop-v0; agents are"),
        (("play", "MathLoop-v0", "--seed", "-1"), 2, "Error: seed=-1: expected a whole number >= 0"),
        (("play", "MathLoop-v0", "--seed", "x"), 2, "Invalid value for '--seed'|'x' is not a valid int"),
        (("play", "MathLoop-v0"), 1, "The input ended before the episode did: solver_0 has said nothing."),
        (("lst",), 2, "No such command 'lst'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_failure_is_one_message_on_stderr_with_its_exit_code(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = command(*arguments)
    assert done.returncode == code
    assert any(part in " ".join(done.stderr.split()) for part in message.split("|"))
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stdout


def test_piped_episode_exits_with_zero() -> None:
    done = command("play", "MathLoop-v0", "--as", "solver", "--seed", "1", typed="\\boxed{46}\n\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Solved. The answer is 46" in done.stdout


def test_id_without_version_works_and_warns_on_stderr() -> None:
    done = command("info", "MathLoop")
    assert done.returncode == 0
    assert "Warning: 'MathLoop' has no version; using the newest, 'MathLoop-v0'" in done.stderr


def test_failure_that_is_no_usage_error_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MasEnvsError("the [disk] is full")

    class Loaded:
        name, value = "fail", "here:fail"

        def load(self) -> object:
            return fail

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (Loaded(),))
    monkeypatch.setattr(sys, "argv", ["mas-envs", "fail"])
    monkeypatch.setattr("warnings.showwarning", cli._show_warning)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
