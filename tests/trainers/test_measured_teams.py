"""`mas-envs eval` of runs with remote team-mates, of endpoints, and of recipes whose policies are all frozen."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from tests.trainers.engines.chat_server import Answer, Seen, approving, chat_server, completion, free_url
from tests.trainers.test_cli import RUNNER, app, succeed
from tests.trainers.test_remote_policy import remote_settings
from trainers.config import SettingsError
from trainers.progress import ConsoleReporter
from trainers.trainer import Trainer

SUM = "\\boxed{1}"


def fails(*arguments: object) -> str:
    result = RUNNER.invoke(app(), [str(argument) for argument in arguments])
    assert isinstance(result.exception, SettingsError)
    return str(result.exception)


def test_an_endpoint_plays_every_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-0123456789abcdef")
    (tmp_path / "prices.yaml").write_text("model: 2.0\n", encoding="utf-8")
    with chat_server(lambda seen, number: Answer(completion(SUM))) as server:
        shown = succeed(
            "eval", f"{server.url}#org/judge-1", "--tasks", "arithmetic", "--n", 1, "--num-tasks", 2, "--max-tokens", 8,
            "--api-key-env", "JUDGE_KEY", "--temperature", 0, "--top-p", 0.9, "--prices", tmp_path / "prices.yaml",
            "--json", tmp_path / "e.json",
        )  # fmt: skip
    assert "cost" in shown
    found = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    assert (found["num_tasks"], found["unfinished"], found["failures"]) == (2, 0, [])
    use = found["agents"]["solver_0"]
    assert use["cost"] == pytest.approx(2.0 * (use["prompt_tokens"] + use["completion_tokens"]) / 1e6)
    assert {seen.body["model"] for seen in server.seen} == {"org/judge-1"}
    assert {seen.key for seen in server.seen} == {"Bearer sk-0123456789abcdef"}
    assert {(seen.body["temperature"], seen.body["top_p"]) for seen in server.seen[1:]} == {(0.0, 0.9)}


def test_a_recipe_of_frozen_policies_is_measured_without_training(tmp_path: Path) -> None:
    def recipe(url: str) -> Any:
        return {
            "env": {"id": "MathLoop-v0", "kwargs": {"tasks": {"name": "arithmetic", "level": 1}}},
            "policies": {name: {"endpoint": {"url": url, "model": name}} for name in ("writer", "judge")},
            "agents": {"solver": "writer", "verifier": "judge"},
        }

    with chat_server(lambda seen, number: Answer(completion(SUM))) as server:
        path = tmp_path / "team.yaml"
        path.write_text(yaml.safe_dump(recipe(server.url)), encoding="utf-8")
        assert "verifier_0" in succeed("eval", path, "--n", 1, "--num-tasks", 2)
    assert {seen.body["model"] for seen in server.seen} == {"writer", "judge"}


def test_a_run_with_a_remote_team_mate_is_measured_and_failures_are_shown(tiny_folder: Path, tmp_path: Path) -> None:
    def answer(seen: Seen, number: int) -> Answer:
        return Answer(b"overloaded", 400) if number == after + 2 else approving(seen, number)

    after = 10**9
    with chat_server(answer) as server:
        Trainer(remote_settings(tiny_folder, server.url, iterations=0), tmp_path / "run").train()
        after = len(server.seen)
        shown = succeed("eval", tmp_path / "run", "--n", 1)
    assert f"{tmp_path / 'run'}: 1 of 4 episodes failed: the policy of verifier_0 failed: policies.verifier:" in shown
    assert "answered 400 ('overloaded')" in shown


def test_targets_that_cannot_be_measured_say_why(tiny_folder: Path, tmp_path: Path) -> None:
    url = free_url()
    assert fails("eval", url, "--top-p", 0) == "--top-p 0.0: expected a number in (0, 1]; 1 keeps all tokens"
    assert "names no model; expected URL#MODEL" in fails("eval", url)
    assert fails("eval", f"{url}#judge").startswith(f"policies.model.endpoint: {url}: cannot be reached")
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(remote_settings(tiny_folder, url).model_dump(mode="json")), encoding="utf-8")
    assert "trains policies.solver; expected a recipe whose policies are all frozen" in fails("eval", path)
    assert "no such file" in fails("eval", tmp_path / "none.yaml")


def test_the_console_says_why_episodes_of_an_evaluation_failed() -> None:
    console = Console(record=True, width=200)
    record = {
        "iteration": 3,
        "tasks": "arithmetic",
        "avg_at_k": 0.5,
        "interval": [0.4, 0.6],
        "num_tasks": 8,
        "n": 1,
        "failures": [{"error": "policies.judge: [gone]", "count": 4}],
    }
    ConsoleReporter(console).evaluation(record)
    assert "! 4 episodes failed: policies.judge: [gone]" in console.export_text()
