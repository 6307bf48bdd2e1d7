"""Episodes advance on their own, and a failing policy costs only its own episode."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mas_envs
from adapters.llm import EnvironmentFailure
from mas_envs import Task
from mas_envs.math_loop.grading import Grade
from tests.trainers.tiny_team import ENV_KWARGS, ROLES, env_pool, make_env, tiny_policy, tiny_seats
from trainers.rollout import (
    Deadlines,
    EnvPool,
    EpisodeStart,
    Rollout,
    Seats,
    TurnReply,
    TurnRequest,
    collect_rollouts,
)


class SpokenPolicy:
    """Answers from a function; turns listed in `slow` wait until nothing else is in flight."""

    def __init__(self, speak: Any, slow: Sequence[str] = ()) -> None:
        self.speak, self.slow = speak, set(slow)
        self.waiting: list[TurnRequest] = []
        self.order: list[str] = []

    @property
    def num_in_flight(self) -> int:
        return len(self.waiting)

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        self.waiting += requests

    def poll(self) -> list[TurnReply]:
        ready = [request for request in self.waiting if request.request_id not in self.slow] or self.waiting
        request = ready[0]
        self.waiting.remove(request)
        self.order.append(request.request_id)
        reply = self.speak(request)
        return [reply if isinstance(reply, TurnReply) else answer(request, reply)]


def answer(request: TurnRequest, text: str, **changes: Any) -> TurnReply:
    plain = TurnReply(request.request_id, text, (1,), (2, 3), (-0.1, -0.2), "stop", 0, 0.01)
    return replace(plain, **changes)


def expert(request: TurnRequest) -> str:
    import random

    text: str = request.env.unwrapped.scripted_action(request.agent_id, random.Random(request.seed))
    return text


def seats(policy: Any) -> Seats:
    return Seats({"p": policy}, dict.fromkeys(ROLES, "p"), ROLES)


def starts(num: int) -> list[EpisodeStart]:
    return [EpisodeStart(f"r{i}", f"g{i}", i) for i in range(num)]


def test_experts_solve_every_task_and_every_turn_is_recorded() -> None:
    rollouts = collect_rollouts(starts(5), env_pool(), seats(SpokenPolicy(expert)), seed=0)
    assert [rollout.rollout_id for rollout in rollouts] == ["r0", "r1", "r2", "r3", "r4"]
    for rollout in rollouts:
        assert (rollout.success, rollout.status) == (True, "completed")
        assert [turn.agent_id for turn in rollout.turns] == ["solver_0", "verifier_0"]
        assert rollout.returns == {"solver_0": 1.0, "verifier_0": 1.0}
        assert [turn.reward_terms for turn in rollout.turns] == [{"correct": 1.0}, {"correct": 1.0}]
        assert isinstance(rollout.task, Task)


def test_a_slow_turn_holds_up_no_other_episode() -> None:
    policy = SpokenPolicy(expert, slow=["r0/0"])
    collect_rollouts(starts(3), env_pool(), seats(policy), seed=0)
    assert policy.order.index("r0/0") > policy.order.index("r1/1")
    assert policy.order.index("r0/0") > policy.order.index("r2/1")


@pytest.mark.parametrize("reason", ["failed", "cancelled"])
def test_policy_failure_loses_one_episode_and_says_why(reason: Any) -> None:
    def speak(request: TurnRequest) -> Any:
        if request.request_id == "r1/1":
            return answer(request, "", finish_reason=reason, error="out of memory" if reason == "failed" else None)
        return expert(request)

    rollouts = collect_rollouts(starts(3), env_pool(), seats(SpokenPolicy(speak)), seed=0)
    assert [rollout.status for rollout in rollouts] == ["completed", "lost", "completed"]
    assert "the policy of verifier_0 failed" in (rollouts[1].error or "")
    assert [turn.agent_id for turn in rollouts[1].turns] == ["solver_0"]
    assert rollouts[1].success is None


def test_late_completion_truncates_the_episode() -> None:
    policy = SpokenPolicy(lambda request: answer(request, "", finish_reason="deadline"))
    (rollout,) = collect_rollouts(starts(1), env_pool(), seats(policy), seed=0)
    assert (rollout.status, rollout.error) == ("truncated", "solver_0 did not answer within the call deadline")


def test_episode_over_its_deadline_is_truncated() -> None:
    def slowly(request: TurnRequest) -> str:
        time.sleep(0.02)
        return expert(request)

    (rollout,) = collect_rollouts(
        starts(1), env_pool(), seats(SpokenPolicy(slowly)), seed=0, deadlines=Deadlines(episode_s=0.01)
    )
    assert rollout.status == "truncated"
    assert "the episode took longer than 0.01 s" in (rollout.error or "")


def broken_env() -> Any:
    env = make_env()

    def receive(agent_id: str, text: str) -> Any:
        raise KeyError("forgot a case")

    env.receive = receive
    return env


def test_broken_environment_is_named_with_agent_turn_and_task() -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"failed in step\(\) at turn 0, agent solver_0, task .*KeyError"
    ) as info:
        collect_rollouts(starts(1), EnvPool(broken_env), seats(SpokenPolicy(expert)), seed=0)
    assert isinstance(info.value.__cause__, KeyError)


def test_environments_are_used_again_and_closed() -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(make_env())
        return made[-1]

    pool = EnvPool(make)
    collect_rollouts(starts(4), pool, seats(SpokenPolicy(expert)), seed=0)
    collect_rollouts(starts(4), pool, seats(SpokenPolicy(expert)), seed=1)
    assert len(made) == 4
    pool.close()


def test_every_finished_rollout_is_reported_once() -> None:
    seen: list[Rollout] = []
    rollouts = collect_rollouts(starts(4), env_pool(), seats(SpokenPolicy(expert)), seed=0, on_finished=seen.append)
    assert sorted(rollout.rollout_id for rollout in seen) == [rollout.rollout_id for rollout in rollouts]


def test_sampled_tokens_are_kept_as_they_were_sampled(tiny_folder: Path) -> None:
    policy = tiny_policy(tiny_folder)
    rollouts = collect_rollouts(starts(6), env_pool(), tiny_seats(policy), seed=5)
    for rollout in rollouts:
        for turn in rollout.turns:
            reply = turn.reply
            assert len(reply.completion_ids) == len(reply.behaviour_logprobs) <= 8
            assert policy.codec.decode(reply.completion_ids) == reply.text
            assert policy.codec.decode(reply.prompt_ids).find(turn.prompt) >= 0


def test_same_seed_gives_the_same_rollouts_in_another_thread(tiny_folder: Path) -> None:
    def play(seed: int) -> list[str]:
        rollouts = collect_rollouts(starts(4), env_pool(), tiny_seats(tiny_policy(tiny_folder)), seed=seed)
        return [turn.reply.text for rollout in rollouts for turn in rollout.turns]

    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(play(1)))
    thread.start()
    thread.join()
    assert found == [play(1)]
    assert play(1) != play(2)


def graded_by(grader: Any) -> Any:
    return mas_envs.make("MathLoop-v0", **{**ENV_KWARGS, "grader": grader})


def test_steps_in_threads_wait_side_by_side_and_leave_the_same_records() -> None:
    meeting = threading.Barrier(3)

    def patient(completion: str, answer: str) -> Grade:
        meeting.wait(10.0)  # passes only when three gradings have begun
        return Grade(correct=True, extracted=answer, status="graded")

    def say(request: TurnRequest) -> str:
        answer = request.env.unwrapped.task.answer
        return f"\\boxed{{{answer}}}" if request.agent_id == "solver_0" else "<verify>approve</verify>"

    threaded = EnvPool(lambda: graded_by(patient), step_threads=3)
    rollouts = collect_rollouts(starts(3), threaded, seats(SpokenPolicy(say)), seed=0)
    plain = collect_rollouts(starts(3), env_pool(), seats(SpokenPolicy(say)), seed=0)
    assert not meeting.broken
    assert [rollout.rollout_id for rollout in rollouts] == ["r0", "r1", "r2"]
    assert [(r.success, r.returns, r.turns) for r in rollouts] == [(r.success, r.returns, r.turns) for r in plain]


def test_an_environment_that_raises_in_a_thread_is_told_with_its_agent_and_turn() -> None:
    pool = EnvPool(broken_env, step_threads=2)
    with pytest.raises(EnvironmentFailure, match=r"failed in step\(\) at turn 0, agent solver_0, task .*KeyError"):
        collect_rollouts(starts(2), pool, seats(SpokenPolicy(expert)), seed=0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("env_")]
