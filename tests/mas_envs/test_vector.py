import re
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError, MasEnvsError
from mas_envs.tasks import Task, TaskSet
from mas_envs.vector import EpisodeResult, VectorConversation, env_seed, make_vec
from mas_envs.wrappers import TokenEncoding, TurnLimit
from tests.mas_envs.wrappers.contract import APPROVE, REJECT, SOLUTION, WRONG, Echo, right_is_right

TASKS = TaskSet([Task(f"t{index}", f"question {index}", "right") for index in range(50)])


def vector(n: int = 3, **kwargs: Any) -> VectorConversation:
    return make_vec("MathLoop-v0", n, grader=right_is_right, tasks=TASKS, **kwargs)


def play_through(envs: VectorConversation) -> list[EpisodeResult]:
    """Everybody answers at once until nobody waits; solvers are right in every other environment."""
    while not envs.is_over:
        for agent_id, turns in envs.pending().items():
            if agent_id == "solver_0":
                envs.step({"solver_0": [SOLUTION if index % 2 else WRONG for index in turns.env_indices]})
            else:
                envs.step({"verifier_0": [APPROVE if index % 3 else REJECT for index in turns.env_indices]})
    return envs.results


def test_open_turns_are_batched_by_agent() -> None:
    envs = vector(4)
    envs.reset(seed=0)
    envs.step({1: SOLUTION, 3: WRONG})
    pending = envs.pending()
    assert {agent_id: turns.env_indices for agent_id, turns in pending.items()} == {
        "solver_0": (0, 2),
        "verifier_0": (1, 3),
    }
    assert pending["verifier_0"].observations[1] == envs.envs[3].observe("verifier_0")
    assert pending["solver_0"].observations == (envs.envs[0].observe("solver_0"), envs.envs[2].observe("solver_0"))


def test_observations_are_those_of_the_present_turn() -> None:
    envs = vector(1)
    envs.reset(seed=0)
    for action in (WRONG, REJECT):
        envs.pending()
        envs.step({0: action})
    assert envs.pending()["solver_0"].observations == (envs.envs[0].observe("solver_0"),)


def test_answers_of_an_agent_go_to_its_pending_turns_in_order() -> None:
    envs = vector(3)
    envs.reset(seed=0)
    envs.step({1: SOLUTION})
    envs.step({"solver_0": ["first", "third"]})
    assert [env.unwrapped.transcript[0].text for env in envs.envs] == ["first", SOLUTION, "third"]


def test_environments_advance_independently() -> None:
    envs = vector(2)
    envs.reset(seed=0)
    envs.step({0: SOLUTION})
    finished = envs.step({0: APPROVE})
    assert [result.env_index for result in finished] == [0]
    assert {agent_id: turns.env_indices for agent_id, turns in envs.pending().items()} == {"solver_0": (1,)}
    assert not envs.is_over


def test_result_of_an_episode_holds_how_it_went() -> None:
    envs = vector(1)
    envs.reset(seed=7)
    for action in ("hm", REJECT, SOLUTION):
        finished = envs.step({0: action})
    [result] = finished
    assert result.returns == {"solver_0": pytest.approx(0.9), "verifier_0": 1.0}
    assert (result.success, result.truncated, result.error, result.num_turns) == (True, False, None, 3)
    assert (result.seed, result.episode_index) == (env_seed(7, 0), 0)
    assert result.task_id == envs.envs[0].unwrapped.task.id
    assert envs.results == finished
    assert envs.is_over
    assert envs.pending() == {}


def test_truncation_is_told_from_termination() -> None:
    envs = vector(1, wrap=lambda env: TurnLimit(env, 1))
    envs.reset(seed=0)
    [result] = envs.step({0: WRONG})
    assert (result.truncated, result.success) == (True, None)


def test_wrong_answer_is_no_success() -> None:
    envs = vector(1)
    envs.reset(seed=0)
    envs.step({0: WRONG})
    [result] = envs.step({0: APPROVE})
    assert result.success is False


def test_same_seed_gives_the_same_results_and_another_seed_others() -> None:
    def results_of(seed: int, num_threads: int = 0) -> list[EpisodeResult]:
        envs = vector(6, num_threads=num_threads)
        envs.reset(seed=seed)
        results = play_through(envs)
        envs.close()
        return results

    assert results_of(3) == results_of(3) == results_of(3, num_threads=4)
    assert [result.task_id for result in results_of(3)] != [result.task_id for result in results_of(4)]


def test_environments_start_from_different_seeds() -> None:
    envs = vector(8)
    envs.reset(seed=0)
    assert len({env.unwrapped.task.id for env in envs.envs}) > 3


@given(st.sets(st.tuples(st.integers(0, 2**40), st.integers(0, 10_000)), min_size=2, max_size=50))
def test_seeds_of_environments_are_distinct_and_fit_every_generator(pairs: set[tuple[int, int]]) -> None:
    seeds = {env_seed(*pair) for pair in pairs}
    assert len(seeds) == len(pairs)
    assert all(0 <= seed < 2**63 for seed in seeds)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=12, max_size=40))
def test_order_in_which_environments_are_stepped_does_not_change_their_episodes(order: list[int]) -> None:
    scripts = [iter([WRONG, REJECT, SOLUTION]) for _ in range(4)]
    envs, together = vector(4), vector(4)
    envs.reset(seed=1)
    together.reset(seed=1)
    for index in [*order, *(i for i in range(4) for _ in range(3))]:
        if any(index in turns.env_indices for turns in envs.pending().values()):
            envs.step({index: next(scripts[index])})
    for action in (WRONG, REJECT, SOLUTION):
        together.step(dict.fromkeys(range(4), action))
    assert sorted(envs.results, key=lambda result: result.env_index) == together.results


def test_autoreset_begins_another_episode_at_once() -> None:
    envs = vector(2, autoreset=True)
    envs.reset(seed=0)
    for _ in range(3):
        envs.step({0: SOLUTION})
        [result] = envs.step({0: APPROVE})
        assert result.env_index == 0
        assert envs.pending()["solver_0"].env_indices == (0, 1)
    assert [result.episode_index for result in envs.results] == [0, 1, 2]
    assert [result.seed is None for result in envs.results] == [False, True, True]
    assert not envs.is_over


def test_reset_forgets_the_results_of_before() -> None:
    envs = vector(1)
    envs.reset(seed=0)
    play_through(envs)
    envs.reset(seed=1)
    assert envs.results == []
    assert envs.pending()["solver_0"].env_indices == (0,)


def test_options_of_each_environment_choose_its_task() -> None:
    envs = vector(3)
    envs.reset(options=[{"task": index} for index in (5, 6, 7)])
    assert [env.unwrapped.task.id for env in envs.envs] == ["t5", "t6", "t7"]
    envs.reset(options={"task": 9})
    assert {env.unwrapped.task.id for env in envs.envs} == {"t9"}


def test_environments_of_others_and_early_leavers_are_stepped_to_the_end() -> None:
    envs = VectorConversation([Echo(), Echo()])
    envs.reset()
    envs.step({"speaker_0": ["bye", "hello"]})
    assert {agent_id: turns.env_indices for agent_id, turns in envs.pending().items()} == {"listener_0": (0, 1)}
    [result] = envs.step({0: "bye"})
    assert result.returns == {"speaker_0": 0.25, "listener_0": 0.5}


def test_tokens_are_actions_too() -> None:
    envs = vector(2, wrap=lambda env: TokenEncoding(env, max_prompt_tokens=4, max_new_tokens=2))
    envs.reset(seed=0)
    for _ in range(2):
        envs.step({"solver_0": [67, 68]})
    assert [env.unwrapped.transcript[0].text for env in envs.envs] == ["AA", "BB"]


def test_threads_step_waiting_environments_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=20)
    envs = VectorConversation([Echo(lambda text: (meeting.wait(), None)[1]) for _ in range(3)], num_threads=3)
    envs.reset()
    envs.step(dict.fromkeys(range(3), "hello"))
    assert [env.unwrapped.heard for env in envs.envs] == [["hello"]] * 3
    envs.close()


def test_failure_of_one_environment_is_named_and_the_others_go_on() -> None:
    def fail(text: str) -> None:
        raise ConnectionError("no route")

    envs = VectorConversation([Echo(), Echo(fail), Echo()])
    envs.reset()
    with pytest.raises(MasEnvsError, match=re.escape("environment 1 failed (ConnectionError: no route)")) as caught:
        envs.step({"speaker_0": ["a", "b", "c"]})
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert {agent_id: turns.env_indices for agent_id, turns in envs.pending().items()} == {
        "listener_0": (0, 2),
        "speaker_0": (1,),
    }


@pytest.mark.parametrize("answers", [["one"], "a single str", ["1", "2", "3"]])
def test_answers_that_do_not_match_the_pending_turns_are_refused(answers: Any) -> None:
    envs = vector(2)
    envs.reset(seed=0)
    with pytest.raises(InvalidActionError, match="for 'solver_0', which has 2 pending turns"):
        envs.step({"solver_0": answers})
    assert envs.pending()["solver_0"].env_indices == (0, 1)


@pytest.mark.parametrize("index", [-1, 2])
def test_index_outside_the_environments_is_refused(index: int) -> None:
    envs = vector(2)
    envs.reset(seed=0)
    with pytest.raises(InvalidActionError, match=f"environment {index} of actions: expected 0 to 1"):
        envs.step({index: "x"})


def test_action_for_an_ended_episode_is_refused_before_any_other_is_taken() -> None:
    envs = vector(2)
    envs.reset(seed=0)
    envs.step({0: SOLUTION})
    envs.step({0: APPROVE})
    with pytest.raises(EpisodeOrderError, match="environment 0 waits for no action; its episode has ended"):
        envs.step({1: WRONG, 0: WRONG})
    assert envs.envs[1].unwrapped.transcript == []


@pytest.mark.parametrize("call", ["pending", "step"])
def test_call_before_reset_says_so(call: str) -> None:
    envs = vector(1)
    with pytest.raises(EpisodeOrderError, match=r"have not begun; call reset\(\) first"):
        envs.pending() if call == "pending" else envs.step({0: "x"})


def test_options_of_the_wrong_number_are_refused() -> None:
    with pytest.raises(BadArgumentError, match="options has 2 entries for 3 environments"):
        vector(3).reset(options=[None, None])


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_number_below_one_is_refused(n: float) -> None:
    with pytest.raises(BadArgumentError, match=re.escape(f"n={n!r}: expected an integer of at least 1")):
        make_vec("MathLoop-v0", n)  # type: ignore[arg-type]


def test_no_environment_or_one_given_twice_is_refused() -> None:
    env = Echo()
    with pytest.raises(BadArgumentError, match="envs holds 2 environments; expected at least one, and each only once"):
        VectorConversation([env, env])
    with pytest.raises(BadArgumentError, match="envs holds 0 environments"):
        VectorConversation([])


def test_negative_number_of_threads_is_refused() -> None:
    with pytest.raises(BadArgumentError, match="num_threads=-1: expected 0 for none"):
        VectorConversation([Echo()], num_threads=-1)


def test_close_can_be_called_twice() -> None:
    envs = vector(2, num_threads=2)
    envs.reset(seed=0)
    envs.close()
    envs.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mas_envs-vector")]
