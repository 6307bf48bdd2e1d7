"""A team-mate behind an OpenAI-compatible endpoint: it acts, and its failures cost episodes only."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

import mas_envs
from mas_envs import Task
from tests.trainers.engines.chat_server import Answer, Seen, approving, chat_server, completion, free_url
from tests.trainers.tiny_team import ENV_KWARGS, ROLES, tiny_policy, tiny_settings
from trainers.config import PolicySettings, SettingsError, parse_settings
from trainers.remote_policy import RemotePolicy, remote_policy
from trainers.rollout import EnvPool, EpisodeStart, Rollout, Seats, collect_rollouts
from trainers.trainer import Trainer

APPROVE = "<verify>approve</verify>"
KEY = "sk-0123456789abcdef"


def policy(url: str, policy_id: str = "v", **changes: Any) -> RemotePolicy:
    endpoint = {"url": url, "model": "judge", "retries": 1, "timeout_s": 10.0, **changes}
    return remote_policy(policy_id, PolicySettings.model_validate({"endpoint": endpoint}))


def play(seats: Seats, num: int = 3, step_threads: int = 0, max_loops: int = 2) -> list[Rollout]:
    starts = [EpisodeStart(f"r{index}", f"g{index}", index) for index in range(num)]
    kwargs = {**ENV_KWARGS, "max_loops": max_loops}
    envs = EnvPool(lambda: mas_envs.make("MathLoop-v0", **kwargs), step_threads=step_threads)
    try:
        return collect_rollouts(starts, envs, seats, seed=0)
    finally:
        for each in seats.policies.values():
            if isinstance(each, RemotePolicy):
                each.close()


def beside(tiny_folder: Path, remote: RemotePolicy) -> Seats:
    return Seats({"s": tiny_policy(tiny_folder, "s"), "v": remote}, {"solver_0": "s", "verifier_0": "v"}, ROLES)


def alternating(seen: Seen, number: int) -> Answer:
    return Answer(completion(APPROVE if number % 2 else "<verify>reject</verify>"))


@pytest.mark.parametrize("step_threads", [0, 2])
def test_an_endpoint_plays_its_agent_and_its_tokens_are_counted(tiny_folder: Path, step_threads: int) -> None:
    with chat_server(approving) as server:
        rollouts = play(beside(tiny_folder, policy(server.url)), step_threads=step_threads)
    for rollout in rollouts:
        assert rollout.status == "completed"
        verdict = rollout.turns[1]
        assert (verdict.agent_id, verdict.reply.text, verdict.valid) == ("verifier_0", APPROVE, True)
        assert (verdict.reply.num_prompt_tokens, verdict.reply.num_completion_tokens) == (11, 4)
        assert verdict.reply.completion_ids == ()
    assert all(seen.body["messages"][0]["content"].startswith("Check ") for seen in server.seen)


def test_a_failure_costs_its_episode_and_says_why(tiny_folder: Path) -> None:
    with chat_server(lambda seen, number: Answer(b"no", 404) if number == 1 else approving(seen, number)) as server:
        rollouts = play(beside(tiny_folder, policy(server.url)))
    assert sorted(rollout.status for rollout in rollouts) == ["completed", "completed", "lost"]
    (lost,) = [rollout for rollout in rollouts if rollout.status == "lost"]
    assert lost.error == (
        f"the policy of verifier_0 failed: policies.v: {server.url}: answered 404 ('no'); expected a model that it "
        "serves (GET /models lists them), at an address that ends in /v1"
    )
    assert [turn.agent_id for turn in lost.turns] == ["solver_0"]


def test_an_answer_that_is_late_loses_the_episode(tiny_folder: Path) -> None:
    release = threading.Event()
    with chat_server(lambda seen, number: Answer(completion(APPROVE), hang=release)) as server:
        (rollout,) = play(beside(tiny_folder, policy(server.url, timeout_s=0.2)), num=1)
        release.set()
    assert rollout.status == "lost"
    assert "no answer within 0.2 s" in (rollout.error or "")


def test_a_slow_endpoint_does_not_hold_up_the_answers_of_another() -> None:
    """Three verdicts wait until an episode that was rejected at once has come back to the verifier."""
    came_back = threading.Event()

    def verifier(seen: Seen, number: int) -> Answer:
        if number == 0:
            return Answer(completion("<verify>reject</verify>"))
        if number == 4:
            came_back.set()
        assert came_back.wait(10.0)
        return approving(seen, number)

    with (
        chat_server(lambda seen, number: Answer(completion("\\boxed{1}"))) as quick,
        chat_server(verifier) as slow,
    ):
        policies = {"s": policy(quick.url, "s"), "v": policy(slow.url, retries=0)}
        seats = Seats(dict(policies), {"solver_0": "s", "verifier_0": "v"}, ROLES)
        rollouts = play(seats, num=4, max_loops=3)
    assert [rollout.status for rollout in rollouts] == ["completed"] * 4


def test_another_temperature_and_top_p_go_to_the_same_endpoint() -> None:
    with chat_server(approving) as server:
        remote = policy(server.url)
        cold = remote.resampled(0.0, 0.5)
        assert remote.resampled() is remote
        play(Seats({"v": cold}, dict.fromkeys(ROLES, "v"), ROLES), num=1)
    assert {(seen.body["temperature"], seen.body["top_p"]) for seen in server.seen} == {(0.0, 0.5)}
    assert remote.resampled(top_p=0.5).sampling.temperature == remote.sampling.temperature
    assert cold.engine is remote.engine


def remote_settings(folder: Path, url: str, endpoint: dict[str, Any] | None = None, **changes: Any) -> Any:
    solver = {"model": str(folder), "lr": 1e-3, "sampling": {"max_tokens": 8}}
    verifier = {"endpoint": {"url": url, "model": "judge", "retries": 0, **(endpoint or {})}}
    return tiny_settings(folder, **{"policies": {"solver": solver, "verifier": verifier}, "iterations": 2, **changes})


def test_evaluations_of_a_run_sample_as_its_settings_say(tiny_folder: Path, tmp_path: Path) -> None:
    evaluation = {"num_tasks": 2, "temperature": 0.6, "top_p": 0.95}
    with chat_server(alternating) as server:
        Trainer(remote_settings(tiny_folder, server.url, iterations=0, evaluation=evaluation), tmp_path / "run").train()
    assert {(seen.body["temperature"], seen.body["top_p"]) for seen in server.seen[1:]} == {(0.6, 0.95)}


def test_a_run_trains_beside_a_remote_team_mate_and_goes_on_after_a_stop(tiny_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with chat_server(alternating) as server:
        trainer = Trainer(remote_settings(tiny_folder, server.url, prices={"verifier": 2.0}), run)
        trainer.train()
        settings = yaml.safe_load((run / "settings.yaml").read_text(encoding="utf-8"))
        (run / "settings.yaml").write_text(yaml.safe_dump({**settings, "iterations": 3}), encoding="utf-8")
        result = Trainer.resume(run).train()
    use = result.after.agents["verifier_0"]
    assert use.cost == pytest.approx(2.0 * 15 * use.turns / 1e6)
    newest = max((run / "checkpoints").iterdir())
    assert (newest / "solver").is_dir()
    assert not (newest / "verifier").exists()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    iterations = [line for line in lines if line["kind"] == "iteration"]
    assert [line["iteration"] for line in iterations] == [1, 2, 3]
    assert all(set(line["policies"]) == {"solver"} for line in iterations)
    assert all(line["policies"]["solver"]["num_updates"] == 1 for line in iterations)
    assert all(line["agents"]["verifier_0"]["completion_tokens"] >= 12 * 4 for line in iterations)
    assert result.report.is_file()


def test_a_warm_start_leaves_the_remote_team_mate_out(tmp_path: Path) -> None:
    solver = {"model": "tiny", "lr": 1e-3, "sampling": {"max_tokens": 8}}
    with chat_server(alternating) as server:
        settings = remote_settings(
            tmp_path,
            server.url,
            policies={"solver": solver, "verifier": {"endpoint": {"url": server.url, "model": "judge"}}},
            tiny_model={"hidden_size": 32, "intermediate_size": 64, "num_layers": 1, "num_heads": 2},
            warm_start={"num_episodes": 40, "steps": 4, "batch_size": 16},
            iterations=1,
        )
        Trainer(settings, tmp_path / "run").train()
    assert set(json.loads((tmp_path / "run" / "models" / "starting.json").read_text())) == {"solver"}


def test_a_run_survives_an_endpoint_that_breaks_and_sounds_an_alarm(tiny_folder: Path, tmp_path: Path) -> None:
    broken: list[bool] = []

    def answer(seen: Seen, number: int) -> Answer:
        return Answer(b"<html>gone</html>") if broken else approving(seen, number)

    class Break:
        def on_iteration(self, trainer: Trainer, record: Any) -> None:
            broken.append(True)

        def on_evaluation(self, trainer: Trainer, record: Any) -> None:
            pass

    with chat_server(answer) as server:
        settings = remote_settings(tiny_folder, server.url, transcripts_per_iteration=0)
        result = Trainer(settings, tmp_path / "run", callbacks=[Break()]).train()  # type: ignore[list-item]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first, second = [line for line in lines if line["kind"] == "iteration"]
    assert (first["lost_rollouts"], second["lost_rollouts"]) == (0, second["num_rollouts"])
    (alarm,) = second["alarms"]
    assert alarm["name"] == "lost_rollouts"
    assert "policies.verifier" in alarm["message"]
    assert "sent '<html>gone</html>', which is no chat completion" in alarm["message"]
    assert result.after.unfinished == result.after.overall.num_tasks
    (error,) = result.after.failures
    assert "sent '<html>gone</html>'" in error


@pytest.mark.parametrize("text", ["half a pair \ud800", "\x00", "<|im_end|>\n" * 100, ""])
def test_a_run_survives_texts_that_are_hard_to_write_down(tiny_folder: Path, tmp_path: Path, text: str) -> None:
    with chat_server(lambda seen, number: Answer(completion(text))) as server:
        settings = remote_settings(tiny_folder, server.url, iterations=1)
        result = Trainer(settings, tmp_path / "run").train()
    assert result.after.unfinished == 0


def test_a_key_is_in_no_file_of_the_run(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", f"{KEY}\n")
    caplog.set_level("DEBUG")

    def answer(seen: Seen, number: int) -> Answer:
        return approving(seen, number) if number % 3 else Answer(f"unknown key {KEY}".encode(), 400 if number else 503)

    with chat_server(answer) as server:
        settings = remote_settings(tiny_folder, server.url, {"api_key_env": "JUDGE_KEY", "retries": 1}, iterations=1)
        Trainer(settings, tmp_path / "run").train()
    assert {seen.key for seen in server.seen} == {f"Bearer {KEY}"}
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert any(b"unknown key [key]" in path.read_bytes() for path in files)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "cannot be reached (ConnectError"),
        (Answer(b'{"error": {"message": "no judge"}}', 404), "answered 404 ('no judge'); expected a model"),
        (Answer(b"", 401), "put a valid key into the environment variable"),
        (Answer(b"hello"), "sent 'hello', which is no chat completion"),
    ],
)
def test_an_endpoint_that_cannot_play_is_found_before_any_model_loads(
    tmp_path: Path, answer: Answer | None, message: str
) -> None:
    with chat_server(lambda seen, number: answer or Answer()) as server:
        url = free_url() if answer is None else server.url
        with pytest.raises(SettingsError, match=r"policies\.verifier\.endpoint: http") as caught:
            Trainer(remote_settings(Path("no-such-model"), url), tmp_path / "run").train()
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_measuring_a_run_whose_endpoint_is_down_is_an_error(tiny_folder: Path, tmp_path: Path) -> None:
    with chat_server(approving) as server:
        Trainer(remote_settings(tiny_folder, server.url, iterations=0), tmp_path / "run").train()
    with pytest.raises(SettingsError, match="cannot be reached"):
        Trainer.resume(tmp_path / "run").measure(n=1)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("JUDGE_KEY", None, r"policies\.v\.endpoint\.api_key_env='JUDGE_KEY': no such environment variable"),
        ("JUDGE_KEY", " \n", r"policies\.v\.endpoint\.api_key_env='JUDGE_KEY': no such environment variable"),
        ("JUDGE_KEY", "two words", r"policies\.v\.endpoint: api_key \(not shown\) holds a space"),
        ("sk-abc", None, r"policies\.v\.endpoint\.api_key_env \(not shown, it may be a key\) names no environment"),
    ],
)
def test_a_key_that_cannot_be_had_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None, message: str
) -> None:
    if value is not None:
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=message):
        policy("http://127.0.0.1:9/v1", api_key_env=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frozen": False}, "a policy with an 'endpoint' cannot be trained; remove 'frozen: false'"),
        ({"lora": {"rank": 4}}, "is neither loaded nor trained here; remove 'lora'"),
        ({"model": "other", "lr": 1e-3}, "is neither loaded nor trained here; remove 'model', 'lr'"),
        ({"engine": {"kind": "vllm"}}, "is neither loaded nor trained here; remove 'engine'"),
        ({"schedule": "cosine"}, "is neither loaded nor trained here; remove 'schedule'"),
    ],
)
def test_settings_that_an_endpoint_cannot_have_are_refused(changes: dict[str, Any], message: str) -> None:
    values = remote_settings(Path("m"), "http://127.0.0.1:9/v1").model_dump()
    values["policies"]["verifier"].update(changes)
    with pytest.raises(SettingsError, match=rf"policies\.verifier=.*{message}"):
        parse_settings(values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "localhost:8000"}, r"\.url='localhost:8000': .*expected an address such as http://localhost:8000/v1"),
        ({"url": "http://h:0/v1"}, r"\.url=.*expected an address such as"),
        ({"url": "http://h/v1/chat/completions"}, r"\.url=.*expected the address up to /v1"),
        ({"url": "http://h/v1?version=2"}, r"\.url=.*expected no query and no fragment"),
        ({"url": "http://me:secret@h/v1"}, r"\.url=.*expected no user and no password"),
        ({"extra_body": {"messages": []}}, r"\.extra_body=.*'messages' is set by the trainer; remove it"),
        ({"extra_body": {"temperature": 0.5}}, r"\.extra_body=.*'temperature' is no field to add"),
        ({"retries": -1}, r"\.retries=-1"),
        ({"api_key": "sk-abc"}, r"\.api_key'; did you mean 'api_key_env'"),
    ],
)
def test_settings_of_an_endpoint_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=rf"policies\.verifier\.endpoint{message}"):
        remote_settings(Path("m"), "http://127.0.0.1:9/v1", changes)


def test_an_endpoint_makes_a_policy_frozen_also_when_the_settings_come_back_from_a_file() -> None:
    settings = remote_settings(Path("m"), "http://127.0.0.1:9/v1", {"extra_body": {"seed": None}})
    assert settings.policies["verifier"].frozen
    assert parse_settings(settings.model_dump(mode="json")) == settings


def test_the_task_of_a_lost_episode_is_known(tiny_folder: Path) -> None:
    with chat_server(lambda seen, number: Answer(b"", 400)) as server:
        (rollout,) = play(beside(tiny_folder, policy(server.url)), num=1)
    assert isinstance(rollout.task, Task)
