"""A team-mate behind an OpenAI-compatible endpoint: it acts, and its failures cost episodes only."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mas_envs.retrieval.server import listen
from tests.mas_envs.retrieval.loopback import Answer, fake
from tests.trainers.tiny_team import ROLES, env_pool, tiny_policy, tiny_settings
from trainers.config import EndpointSettings, PolicySettings, SettingsError, parse_settings
from trainers.remote_policy import RemotePolicy
from trainers.rollout import EpisodeStart, Rollout, Seats, collect_rollouts
from trainers.trainer import Trainer

APPROVE = "<verify>approve</verify>"


def completion(content: Any, *, finish: str = "stop", usage: Any = None) -> bytes:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish}
    used = {"prompt_tokens": 11, "completion_tokens": 4} if usage is None else usage
    return json.dumps({"choices": [choice], "usage": used}).encode()


def policy(url: str, **changes: Any) -> RemotePolicy:
    endpoint = EndpointSettings(url=f"{url}/v1", model="judge", **{"retries": 3, "timeout_s": 5.0, **changes})
    return RemotePolicy("verifier", endpoint, PolicySettings(frozen=True, endpoint=endpoint))


def play(tiny_folder: Path, remote: RemotePolicy, num: int = 3) -> list[Rollout]:
    seats = Seats({"s": tiny_policy(tiny_folder, "s"), "v": remote}, {"solver_0": "s", "verifier_0": "v"}, ROLES)
    starts = [EpisodeStart(f"r{index}", f"g{index}", index) for index in range(num)]
    try:
        return collect_rollouts(starts, env_pool(), seats, seed=0)
    finally:
        remote.close()


def test_an_endpoint_plays_its_agent_and_its_tokens_are_counted(tiny_folder: Path) -> None:
    bodies: list[dict[str, Any]] = []

    def answer(body: bytes, number: int) -> Answer:
        bodies.append(json.loads(body))
        return 200, completion(APPROVE)

    with fake(answer) as url:
        rollouts = play(tiny_folder, policy(url))
    for rollout in rollouts:
        assert rollout.status == "completed"
        verdict = rollout.turns[1]
        assert (verdict.agent_id, verdict.reply.text, verdict.valid) == ("verifier_0", APPROVE, True)
        assert (verdict.reply.num_prompt_tokens, verdict.reply.num_completion_tokens) == (11, 4)
        assert verdict.reply.completion_ids == ()
    assert {body["model"] for body in bodies} == {"judge"}
    assert all(body["messages"][0]["content"].startswith("Check ") for body in bodies)


def test_requests_wait_side_by_side(tiny_folder: Path) -> None:
    together = threading.Barrier(3)

    def answer(body: bytes, number: int) -> Answer:
        together.wait(10.0)
        return 200, completion(APPROVE)

    with fake(answer) as url:
        assert [rollout.status for rollout in play(tiny_folder, policy(url, timeout_s=20.0))] == ["completed"] * 3


@pytest.mark.parametrize("trouble", [(429, b"slow down"), (500, b""), (503, b"loading")])
def test_passing_trouble_is_waited_out(tiny_folder: Path, trouble: Answer) -> None:
    with fake(lambda body, number: trouble if number == 0 else (200, completion(APPROVE))) as url:
        (rollout,) = play(tiny_folder, policy(url), num=1)
    assert rollout.status == "completed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>error</html>", "which is no chat completion"),
        (b"[" * 100_000, "which is no chat completion"),
        (b"{}", "which is no chat completion"),
        (b'{"choices": []}', "which is no chat completion"),
        (b'{"choices": [{"message": null}]}', "which is no chat completion"),
        (completion(None), "expected text, no tool call"),
        (completion([{"type": "text"}]), "expected text, no tool call"),
        (b" " * (9 << 20), "the answer is longer than"),
    ],
)
def test_garbage_loses_the_episode_and_says_why(tiny_folder: Path, content: bytes, message: str) -> None:
    with fake(lambda body, number: (200, content)) as url:
        (rollout,) = play(tiny_folder, policy(url), num=1)
    assert rollout.status == "lost"
    assert message in (rollout.error or "")
    assert "policies.verifier" in (rollout.error or "")


@pytest.mark.parametrize("usage", [{}, [], {"prompt_tokens": "many"}, {"completion_tokens": -1}])
def test_usage_that_cannot_be_read_counts_nothing(tiny_folder: Path, usage: Any) -> None:
    with fake(lambda body, number: (200, completion(APPROVE, usage=usage))) as url:
        (rollout,) = play(tiny_folder, policy(url), num=1)
    assert rollout.turns[1].reply.num_completion_tokens == 0


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_not_asked_again(tiny_folder: Path, status: int) -> None:
    asked: list[int] = []

    def answer(body: bytes, number: int) -> Answer:
        asked.append(number)
        return status, b"context too long"

    with fake(answer) as url:
        (rollout,) = play(tiny_folder, policy(url), num=1)
    assert asked == [0]
    assert f"answered {status} (context too long)" in (rollout.error or "")


def test_a_slow_endpoint_is_given_up_at_the_deadline(tiny_folder: Path) -> None:
    release = threading.Event()

    def answer(body: bytes, number: int) -> Answer:
        release.wait(10.0)
        return 200, completion(APPROVE)

    with fake(answer) as url:
        began = time.monotonic()
        (rollout,) = play(tiny_folder, policy(url, timeout_s=0.3), num=1)
        assert time.monotonic() - began < 5.0
        release.set()
    assert "no answer within 0.3 s" in (rollout.error or "")


def remote_settings(folder: Path, url: str, **changes: Any) -> Any:
    solver = {"model": str(folder), "lr": 1e-3, "sampling": {"max_tokens": 8}}
    verifier = {"frozen": True, "endpoint": {"url": url, "model": "judge"}}
    return tiny_settings(folder, policies={"solver": solver, "verifier": verifier}, iterations=2, **changes)


def alternating() -> Callable[[bytes, int], Answer]:
    return lambda body, number: (200, completion(APPROVE if number % 2 else "<verify>reject</verify>"))


def test_a_run_trains_beside_a_remote_team_mate_and_goes_on_later(tiny_folder: Path, tmp_path: Path) -> None:
    with fake(alternating()) as url:
        settings = remote_settings(tiny_folder, f"{url}/v1", prices={"verifier": 2.0})
        result = Trainer(settings, tmp_path / "run").train()
        again = Trainer.resume(tmp_path / "run").measure(n=1)
    assert result.after.agents["verifier_0"].cost == pytest.approx(
        2.0 * 15 * result.after.agents["verifier_0"].turns / 1e6
    )
    assert again.agents["verifier_0"].turns > 0
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    assert (newest / "solver").is_dir()
    assert not (newest / "verifier").exists()


def test_an_endpoint_that_is_down_is_found_before_any_model_loads(tmp_path: Path) -> None:
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    listener.close()
    with pytest.raises(SettingsError, match=r"policies\.verifier\.endpoint\.url='http.*cannot be reached"):
        Trainer(remote_settings(Path("no-such-model"), url), tmp_path / "run").train()


def test_a_key_that_is_not_set_is_named() -> None:
    with pytest.raises(SettingsError, match=r"policies\.verifier\.endpoint\.api_key_env='JUDGE_KEY': no such"):
        policy("http://127.0.0.1:9", api_key_env="JUDGE_KEY")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frozen": False}, "an endpoint cannot be trained; set frozen: true"),
        ({"lora": {"rank": 4}}, "an endpoint has its own model and cannot be trained"),
        ({"model": "other"}, "an endpoint has its own model"),
        ({"engine": {"kind": "vllm"}}, "an endpoint has its own model"),
    ],
)
def test_settings_that_an_endpoint_cannot_have_are_refused(changes: dict[str, Any], message: str) -> None:
    values = remote_settings(Path("m"), "http://127.0.0.1:9/v1").model_dump()
    values["policies"]["verifier"].update(changes)
    with pytest.raises(SettingsError, match=rf"policies\.verifier.*{message}"):
        parse_settings(values)
