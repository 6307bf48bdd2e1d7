import copy

import pytest

from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError
from mas_envs.policies import PolicyError
from mas_envs.spaces import Message
from mas_envs.wrappers import SingleAgentView
from tests.mas_envs.wrappers.contract import (
    APPROVE,
    REJECT,
    SOLUTION,
    WRONG,
    Echo,
    assert_passes_pettingzoo,
    math_loop,
    play,
    proposers,
)


def rejects(messages: tuple[Message, ...]) -> str:
    return REJECT


def approves(messages: tuple[Message, ...]) -> str:
    return APPROVE


def solves_wrongly(messages: tuple[Message, ...]) -> str:
    return WRONG


def solver_view(**kwargs: object) -> SingleAgentView:
    return SingleAgentView(math_loop(**kwargs), "solver_0", {"verifier_0": rejects})


def test_passes_the_tests_of_pettingzoo() -> None:
    assert_passes_pettingzoo(solver_view())
    assert_passes_pettingzoo(SingleAgentView(math_loop(), "verifier_0", {"solver_0": solves_wrongly}))


def test_one_agent_is_left() -> None:
    view = solver_view()
    view.reset(seed=0)
    assert view.possible_agents == view.agents == ["solver_0"]
    assert list(view.observation_spaces) == list(view.action_spaces) == ["solver_0"]


def test_mate_speaks_between_two_turns_of_the_agent() -> None:
    view = solver_view()
    view.reset(seed=0)
    view.step(WRONG)
    assert [turn.text for turn in view.unwrapped.transcript] == [WRONG, REJECT]
    assert view.agent_selection == "solver_0"
    assert not view.terminations["solver_0"]


def test_mate_that_speaks_first_has_spoken_after_reset() -> None:
    view = SingleAgentView(math_loop(), "verifier_0", {"solver_0": solves_wrongly})
    view.reset(seed=0)
    assert [turn.agent_id for turn in view.unwrapped.transcript] == ["solver_0"]
    assert "wrong" in view.observe("verifier_0")["messages"][0]["content"]


def test_mate_is_shown_its_own_observation() -> None:
    shown: list[tuple[Message, ...]] = []

    def listens(messages: tuple[Message, ...]) -> str:
        shown.append(messages)
        return APPROVE

    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": listens})
    view.reset(seed=0)
    view.step(SOLUTION)
    assert [message["role"] for message in shown[0]] == ["user"]
    assert shown[0][0]["content"].startswith("You are the verifier")


def test_reward_that_comes_with_the_turn_of_a_mate_counts() -> None:
    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": approves})
    view.reset(seed=0)
    assert play(view, [SOLUTION]) == {"solver_0": 1.0}


def test_rewards_are_those_of_the_agent_alone() -> None:
    view = SingleAgentView(Echo(), "speaker_0", {"listener_0": lambda messages: "bye"})
    view.reset()
    view.step("hello")
    assert view.rewards == {"speaker_0": 0.5}


def test_agent_that_leaves_early_ends_when_the_others_have() -> None:
    view = SingleAgentView(Echo(), "speaker_0", {"listener_0": lambda messages: "bye"})
    view.reset()
    assert play(view, ["bye"]) == {"speaker_0": 0.25}
    assert view.unwrapped.agents == []


def test_several_mates_play_in_turn() -> None:
    mates = {f"solver_{index}": lambda messages: "pear" for index in range(3)}
    view = SingleAgentView(proposers(), "aggregator_0", mates)
    view.reset()
    assert view.observe("aggregator_0")["messages"][0]["content"].count("pear") == 3
    view.step("pear")
    assert view.infos["aggregator_0"]["success"] is True


def test_turns_of_the_agent_alone_are_counted() -> None:
    view = solver_view()
    view.reset(seed=0)
    counts = [view.infos["solver_0"]["turn"]]
    for _ in range(2):
        view.step(WRONG)
        counts.append(view.infos["solver_0"]["turn"])
    assert counts == [0, 1, 2]


def test_infos_at_the_end_hold_success() -> None:
    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": approves})
    view.reset(seed=0)
    view.step(SOLUTION)
    assert view.last()[4]["success"] is True


def test_copy_in_mid_episode_goes_its_own_way() -> None:
    view = solver_view()
    view.reset(seed=0)
    view.step(WRONG)
    twin = copy.deepcopy(view)
    assert play(view, [SOLUTION]) == {"solver_0": 1.0}
    assert play(twin, [WRONG]) == {"solver_0": 0.0}


def test_action_of_an_agent_that_has_ended_is_refused() -> None:
    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": approves})
    view.reset(seed=0)
    view.step(SOLUTION)
    with pytest.raises(InvalidActionError, match="'again' for solver_0, which has ended"):
        view.step("again")


def test_refused_action_leaves_the_turn_to_the_agent() -> None:
    view = solver_view()
    view.reset(seed=0)
    with pytest.raises(InvalidActionError, match="expected the completion as a str"):
        view.step(7)
    assert play(view, [WRONG, SOLUTION]) == {"solver_0": 1.0}


def test_step_before_reset_says_so() -> None:
    with pytest.raises(EpisodeOrderError, match="before reset"):
        solver_view().step("x")


def test_unknown_agent_is_refused() -> None:
    with pytest.raises(BadArgumentError, match="agent_id='judge_0': no such agent; agents are solver_0, verifier_0"):
        SingleAgentView(math_loop(), "judge_0", {})


def test_missing_mate_is_named() -> None:
    with pytest.raises(BadArgumentError, match="mates lacks verifier_0; give a function for every agent but solver_0"):
        SingleAgentView(math_loop(), "solver_0", {})


def test_mate_for_the_agent_itself_is_refused() -> None:
    with pytest.raises(BadArgumentError, match=r"mates\['solver_0'\]: this is the agent that is left to act"):
        SingleAgentView(math_loop(), "solver_0", {"solver_0": rejects, "verifier_0": rejects})


def test_unknown_mate_is_named() -> None:
    with pytest.raises(BadArgumentError, match="mates has judge_0: no such agents"):
        SingleAgentView(math_loop(), "solver_0", {"judge_0": rejects, "verifier_0": rejects})


def test_mate_that_fails_is_named_and_gives_the_episode_up() -> None:
    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": lambda messages: None})  # type: ignore[dict-item]
    view.reset(seed=0)
    with pytest.raises(PolicyError, match="the policy of verifier_0 returned None of type NoneType in turn 1"):
        view.step(WRONG)
    with pytest.raises(EpisodeOrderError, match="after the end of the episode; call reset"):
        view.step(SOLUTION)
    assert [turn.text for turn in view.unwrapped.transcript] == [WRONG]
