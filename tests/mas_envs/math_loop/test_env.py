"""MathLoop-v0 and MathSolo-v0: who speaks when, what is graded and who is paid."""

import copy
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import mas_envs
from mas_envs import Skill, Task
from mas_envs.conversation import Turn
from mas_envs.errors import BadArgumentError, MasEnvsError
from mas_envs.math_loop.env import MathLoopEnv
from mas_envs.math_loop.grading import Grade, MathGrader, Status
from tests.mas_envs.play_through import finish

GOLDEN = Path(__file__).parents[2] / "golden"
TASK = Task("t", "1+1", "2", "sums")
RIGHT, WRONG, NO_BOX = r"so \boxed{2}", r"so \boxed{3}", "so 2"
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


def golden(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()[1:]]


FLOWS = [case for case in golden("turn_order.jsonl") if case["kind"] == "math"]
VERDICTS = [case for case in golden("actions.jsonl") if case["role"] == "math_verifier"]


def start(task: Task = TASK, **kwargs: Any) -> MathLoopEnv:
    env = mas_envs.make("MathLoop-v0", **kwargs).unwrapped
    assert isinstance(env, MathLoopEnv)
    env.reset(seed=0, options={"task": task})
    return env


def grader_with(status: Status) -> Any:
    return lambda completion, answer: Grade(False, "x", status)


def run_flow(case: Mapping[str, Any], unknown_verdict: str) -> tuple[list[str], list[int], list[str]]:
    """Roles in order, how many earlier outputs each was shown, and what was graded."""
    graded: list[str] = []

    def grader(completion: str, answer: str) -> Grade:
        graded.append(completion)
        return Grade(True, None, "graded")

    env = start(max_loops=case["max_loops"], unknown_verdict=unknown_verdict, grader=grader)
    number, offset = 0, int(case["graded_text"].split("{")[1].rstrip("}")) // 10 * 10
    verdicts = iter(case["verdicts"])
    shown, outputs = [], list[str]()
    while not any(env.terminations.values()):
        content = env.observe(env.agent_selection)["messages"][-1]["content"]
        shown.append(content.count("</solver_0>") + content.count("</verifier_0>"))
        if env.agent_selection == "solver_0":
            number += 1
            outputs.append(f"Try {number}: \\boxed{{{offset + number}}}")
        else:
            outputs.append(next(verdicts, "Wrong. <verify>reject</verify>"))
        env.step(outputs[-1])
    return [env.role_of(turn.agent_id) for turn in env.transcript], shown, graded


@pytest.mark.parametrize("case", FLOWS, ids=lambda case: case["id"])
def test_turns_follow_the_recommended_order(case: dict[str, Any]) -> None:
    turns, shown, graded = run_flow(case, "reject")
    assert turns == case["recommended_turns"]
    assert shown == list(range(len(turns)))
    if turns == case["turns"]:
        assert graded == [case["graded_text"]]


@pytest.mark.parametrize("case", FLOWS, ids=lambda case: case["id"])
def test_turns_follow_the_published_order_if_unknown_verdicts_approve(case: dict[str, Any]) -> None:
    turns, shown, graded = run_flow(case, "approve")
    assert (turns, shown) == (case["turns"], case["context_turns_seen"])
    assert graded == [case["graded_text"]]


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case["id"])
def test_verdict_is_read_as_published_if_unknown_verdicts_approve(case: dict[str, Any]) -> None:
    env = start(unknown_verdict="approve")
    env.step(RIGHT)
    env.step(case["completion"])
    assert any(env.terminations.values()) == (case["published"] == "approve")


@pytest.mark.parametrize("verdict", ["<verify> reject </verify>", "<verify>\nreject\n</verify>"])
def test_white_space_around_a_verdict_does_not_approve_as_published(verdict: str) -> None:
    env = start(unknown_verdict="approve")
    env.step(RIGHT)
    env.step(verdict)
    assert env.agent_selection == "solver_0"
    assert not any(env.terminations.values())


@pytest.mark.parametrize(
    ("actions", "earned", "success"),
    [
        ([RIGHT, APPROVE], {"solver_0": 1.0, "verifier_0": 1.0}, True),
        ([WRONG, APPROVE], {"solver_0": 0.0, "verifier_0": 0.0}, False),
        ([WRONG, REJECT, RIGHT], {"solver_0": 1.0, "verifier_0": 1.0}, True),
        ([RIGHT, REJECT, WRONG], {"solver_0": 0.0, "verifier_0": 0.0}, False),
        ([NO_BOX, REJECT, RIGHT], {"solver_0": 0.9, "verifier_0": 1.0}, True),
        ([RIGHT, "?", NO_BOX], {"solver_0": -0.1, "verifier_0": -0.1}, False),
        ([NO_BOX, APPROVE], {"solver_0": -0.1, "verifier_0": 0.0}, False),
    ],
)
def test_team_is_paid_for_the_last_solution(actions: Sequence[str], earned: dict[str, float], success: bool) -> None:
    env = start()
    assert finish(copy.deepcopy(env), *actions) == earned
    for action in actions:
        env.step(action)
    assert {info["success"] for info in env.infos.values()} == {success}


@pytest.mark.parametrize(
    ("actions", "earned"),
    [
        ([RIGHT, APPROVE], {"solver_0": 1.0, "verifier_0": 1.0}),
        ([WRONG, APPROVE], {"solver_0": 0.0, "verifier_0": 0.0}),
        ([WRONG, REJECT, WRONG], {"solver_0": 0.0, "verifier_0": 1.0}),
        ([RIGHT, REJECT, RIGHT], {"solver_0": 1.0, "verifier_0": 0.0}),
        ([WRONG, "no verdict", RIGHT], {"solver_0": 1.0, "verifier_0": -0.1}),
    ],
)
def test_verifier_is_paid_by_role_for_a_verdict_that_agrees_with_the_grade(
    actions: Sequence[str], earned: dict[str, float]
) -> None:
    assert finish(start(reward="role"), *actions) == earned


def test_reward_function_sees_task_transcript_and_grade() -> None:
    seen: list[Any] = []

    def reward(task: Task, turns: Sequence[Turn], result: Grade) -> Mapping[str, float]:
        seen.append((task, [turn.text for turn in turns], result.correct))
        return {"solver_0": 0.5, "verifier_0": -2}

    assert finish(start(reward=reward), WRONG, REJECT, RIGHT) == {"solver_0": 0.5, "verifier_0": -2.0}
    assert seen == [(TASK, [WRONG, REJECT, RIGHT], True)]


@pytest.mark.parametrize(
    ("paid", "message"),
    [
        (1.0, r"the reward function of math_loop_v0 returned 1\.0; expected a mapping from agent ids"),
        ({"solver": 1.0}, "named the agent 'solver'; its agents are solver_0, verifier_0"),
        ({"solver_0": float("inf")}, "paid solver_0 {'custom': inf} at turn 1; expected finite rewards"),
    ],
)
def test_unusable_result_of_a_reward_function_is_an_error(paid: Any, message: str) -> None:
    with pytest.raises(MasEnvsError, match=message):
        start(reward=lambda task, turns, result: paid, max_loops=1).step(RIGHT)


def test_failed_grader_truncates_the_episode_and_pays_nobody() -> None:
    env = start(grader=grader_with("failed"))
    env.step(RIGHT)
    env.step(APPROVE)
    assert env.truncations == {"solver_0": True, "verifier_0": True}
    assert [(info["success"], info["error"]) for info in env.infos.values()] == [(None, "grading: failed")] * 2
    assert finish(env) == {"solver_0": 0.0, "verifier_0": 0.0}


def test_grader_out_of_time_pays_nothing_and_is_recorded() -> None:
    env = start(grader=grader_with("timeout"))
    env.step(RIGHT)
    env.step(APPROVE)
    assert env.terminations == {"solver_0": True, "verifier_0": True}
    assert [(info["success"], info["error"]) for info in env.infos.values()] == [(False, "grading: timeout")] * 2
    assert finish(env) == {"solver_0": 0.0, "verifier_0": 0.0}


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_verdict_that_nobody_can_judge_is_unpaid_and_recorded(status: Status) -> None:
    env = start(grader=grader_with(status), reward="role")
    env.step(RIGHT)
    env.step(REJECT)
    assert env.infos["verifier_0"]["error"] == f"grading: {status}"
    assert env.infos["verifier_0"]["reward_terms"] == {}


def test_any_of_several_answers_is_right() -> None:
    either = Task("e", "root of 4?", ("-2", "2"))
    assert finish(start(either), RIGHT, APPROVE)["solver_0"] == 1.0


def test_grader_failure_on_one_of_several_answers_is_no_silent_zero() -> None:
    def grader(completion: str, answer: str) -> Grade:
        return Grade(False, "x", "graded" if answer == "-2" else "failed")

    env = start(Task("e", "root of 4?", ("-2", "2")), grader=grader, max_loops=1)
    env.step(WRONG)
    assert env.infos["solver_0"]["error"] == "grading: failed"


def test_cut_solution_is_graded_as_it_was_kept() -> None:
    env = start(max_action_chars=8, max_loops=1)
    env.step(r"\boxed{2} is the answer \boxed{3}")
    assert env.transcript[0].text == r"\boxed{2"
    assert env.infos["solver_0"]["success"] is False
    assert env.infos["solver_0"]["error"] == "the action of 33 characters was cut to 8"


def test_limit_of_turns_truncates_before_the_rules_end() -> None:
    env = start(max_turns=2)
    env.step(RIGHT)
    env.step(REJECT)
    assert env.truncations == {"solver_0": True, "verifier_0": True}
    assert env.infos["solver_0"]["success"] is None


@pytest.mark.parametrize("env_id", ["MathLoop-v0", "MathSolo-v0"])
def test_copy_shares_a_grader_that_holds_processes(env_id: str) -> None:
    with MathGrader(num_workers=1) as grader:
        env = mas_envs.make(env_id, grader=grader.grade)
        env.reset(seed=0, options={"task": TASK})
        twin = copy.deepcopy(env)
        twin.step(RIGHT)
        assert (len(twin.unwrapped.transcript), len(env.unwrapped.transcript)) == (1, 0)
        again = mas_envs.make(env.unwrapped.spec)
        assert again.unwrapped.spec == env.unwrapped.spec


def test_solo_environment_ends_after_one_turn() -> None:
    env = mas_envs.make("MathSolo-v0")
    assert env.possible_agents == ["solver_0"]
    env.reset(options={"task": TASK})
    env.step(RIGHT)
    assert (env.terminations, env.rewards) == ({"solver_0": True}, {"solver_0": 1.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_loops": 0}, "max_loops=0: expected an integer of at least 1"),
        ({"max_loops": 2.0}, r"max_loops=2\.0: expected an integer"),
        ({"max_loops": True}, "max_loops=True: expected an integer"),
        ({"reward": "solo"}, "reward='solo': expected 'team', 'role' or a function"),
        ({"unknown_verdict": "maybe"}, "unknown_verdict='maybe': expected 'reject' or 'approve'"),
        ({"prompt_style": "long"}, "prompt_style='long': expected one of full, short"),
        ({"grader": 3}, "grader=3: expected a function"),
    ],
)
def test_argument_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        mas_envs.make("MathLoop-v0", **arguments)


@pytest.mark.parametrize("style", ["full", "short"])
def test_scripted_experts_solve_every_task(style: str) -> None:
    env, rng = start(prompt_style=style), random.Random(0)
    for index in range(20):
        env.reset(options={"task": env.tasks[index]})
        while not any(env.terminations.values()):
            env.step(env.scripted_action(env.agent_selection, rng))
        assert [turn.valid for turn in env.transcript] == [True, True]
        assert env.infos["solver_0"]["success"] is True


def test_unskilled_experts_are_wrong_or_malformed() -> None:
    env, rng = start(), random.Random(0)
    env.step(env.scripted_action("solver_0", rng, Skill(accuracy=0.0)))
    env.step(env.scripted_action("verifier_0", rng, Skill(malformed=1.0)))
    assert [turn.valid for turn in env.transcript] == [True, False]
    assert env.scripted_action("verifier_0", rng).endswith(REJECT)
