"""One agent's view in Gymnasium: every way in which the agent, its mates and the episode can end."""

from collections.abc import Sequence
from typing import Any

import pytest

import mas_envs
from adapters.gymnasium import AgentEnv
from mas_envs.errors import EpisodeOrderError, MasEnvsError
from tests.adapters.relay import Beat, Relay, all_end
from tests.mas_envs.checker.good_envs import OneByOne, Review


def word(messages: Any) -> str:
    return "word"


def steps(env: AgentEnv) -> list[tuple[float, bool, bool]]:
    """Reward, terminated and truncated of every step of an episode."""
    env.reset(seed=0)
    taken: list[tuple[float, bool, bool]] = []
    while not taken or not any(taken[-1][1:]):
        _, reward, terminated, truncated, info = env.step("word")
        assert info["has_turn"] is not (terminated or truncated)
        taken.append((reward, terminated, truncated))
    return taken


def view(script: Sequence[Beat], agent: str = "b_0", **options: Any) -> AgentEnv:
    return AgentEnv(Relay(script, **options), agent=agent, policies={"b" if agent == "a_0" else "a": word})


GOES_ON, TERMINATED, TRUNCATED = (False, False), (True, False), (False, True)


def test_all_end_with_the_turn_of_a_mate() -> None:
    env = view([Beat("b_0", {"b_0": 1}), Beat("a_0", {"b_0": 2}), Beat("b_0"), Beat("a_0", {"b_0": 4}, all_end())])
    assert steps(env) == [(3.0, *GOES_ON), (4.0, *TERMINATED)]


def test_agent_that_ends_first_has_its_last_step_when_all_have_ended() -> None:
    env = view([Beat("b_0", {"b_0": 1}, {"b_0": "terminated"}), Beat("a_0"), Beat("a_0", {}, {"a_0": "truncated"})])
    assert steps(env) == [(1.0, *TERMINATED)]


def test_reward_that_comes_after_the_last_turn_is_in_the_last_step() -> None:
    script = [Beat("b_0", {}, {"b_0": "terminated"}), Beat("a_0", {"b_0": 2}), Beat("a_0", {"b_0": 4}, all_end())]
    assert steps(view(script, linger=True)) == [(6.0, *TERMINATED)]


def test_mate_that_ends_before_the_first_turn_leaves_the_agent_to_go_on_alone() -> None:
    script = [
        Beat("a_0", {"b_0": 1}, {"a_0": "terminated"}),
        Beat("b_0", {"b_0": 2}),
        Beat("b_0", {}, {"b_0": "terminated"}),
    ]
    assert steps(view(script)) == [(3.0, *GOES_ON), (0.0, *TERMINATED)]


def test_truncation_of_a_mate_is_not_that_of_the_agent() -> None:
    script = [Beat("b_0"), Beat("a_0", {}, {"a_0": "truncated"}), Beat("b_0", {"b_0": 1}, {"b_0": "terminated"})]
    assert steps(view(script)) == [(0.0, *GOES_ON), (1.0, *TERMINATED)]
    assert steps(view([Beat("b_0"), Beat("a_0", {}, {"a_0": "truncated", "b_0": "terminated"})])) == [
        (0.0, *TERMINATED)
    ]


def test_truncation_of_the_agent_is_no_termination() -> None:
    assert steps(view([Beat("b_0", {"b_0": 1}), Beat("a_0", {}, {"a_0": "terminated", "b_0": "truncated"})])) == [
        (1.0, *TRUNCATED)
    ]


def test_reward_of_the_very_beginning_is_in_the_first_step() -> None:
    script = [Beat("a_0", {"b_0": 1}), Beat("b_0", {"b_0": 2}, all_end())]
    assert steps(view(script, first_pays={"b_0": 4})) == [(7.0, *TERMINATED)]


@pytest.mark.parametrize("linger", [False, True])
@pytest.mark.parametrize("agent", ["a_0", "b_0"])
def test_sum_over_the_steps_is_what_the_agent_earns_in_the_whole_episode(agent: str, linger: bool) -> None:
    script = [
        Beat("a_0", {"a_0": 1, "b_0": 2}),
        Beat("b_0", {"a_0": 4, "b_0": 8}),
        Beat("a_0", {"a_0": 16, "b_0": 32}, {"a_0": "terminated"}),
        Beat("b_0", {"a_0": 64 if linger else 0, "b_0": 128}),
        Beat("b_0", {"b_0": 256}, {"b_0": "truncated"}),
    ]
    taken = steps(view(script, agent, linger=linger))
    assert (
        sum(reward for reward, *_ in taken) == mas_envs.play(Relay(script, linger=linger), {"*": word}).returns[agent]
    )
    assert taken[-1][1:] == (TERMINATED if agent == "a_0" else TRUNCATED)


@pytest.mark.parametrize("agent", ["guest_0", "guest_1", "guest_2"])
def test_agents_that_leave_one_by_one_get_what_they_earn(agent: str) -> None:
    env = AgentEnv(OneByOne(), agent=agent, policies={"*": word})
    assert sum(reward for reward, *_ in steps(env)) == mas_envs.play(OneByOne(), {"*": word}).returns[agent]


def test_episode_without_a_turn_of_the_agent_says_so_and_has_one_step_that_ignores_its_action() -> None:
    env = view([Beat("a_0", {"b_0": 2}, all_end("truncated"))], first_pays={"b_0": 1})
    _, info = env.reset(seed=0)
    assert info["has_turn"] is False
    assert env.step(None)[1:4] == (3.0, *TRUNCATED)
    with pytest.raises(EpisodeOrderError, match=r"step\(\) of .* outside an episode; call reset\(\) first"):
        env.step("word")


def test_reward_terms_of_the_first_step_include_what_came_before_it() -> None:
    env = AgentEnv(Review(num_rounds=1), agent="critic")
    _, info = env.reset(seed=0)
    assert info["reward_terms"] == {"patience": 0.25}
    _, reward, _, _, info = env.step("<verdict>accept</verdict>")
    assert info["reward_terms"] == {"patience": 0.25, "solved": 1.0, "rounds": 0.1}
    assert sum(info["reward_terms"].values()) == pytest.approx(reward)


def searcher(share: float, **options: Any) -> AgentEnv:
    """The searcher of a team whose router skips the search in some episodes."""

    def routes(messages: Any) -> str:
        asked = sum(map(ord, messages[0]["content"])) % 100 < share * 100
        return f"<verify>{'no' if asked else 'yes'}</verify>"

    env = mas_envs.make("HierarchicalSearch-v0", max_rounds=2)
    return AgentEnv(env, agent="searcher", policies={"verifier": routes}, **options)


def test_episodes_without_a_turn_can_be_drawn_again() -> None:
    plain, skipping = searcher(0.3), searcher(0.3, skip_without_turn=True)
    passed_over = 0
    for seed in range(4):
        _, info = skipping.reset(seed=seed)
        assert info["has_turn"]
        assert plain.reset(seed=seed)[1]["has_turn"] is (info["num_skipped"] == 0)
        passed_over += info["num_skipped"]
    assert passed_over > 0


def test_task_that_was_chosen_is_not_drawn_again() -> None:
    env = searcher(0.0, skip_without_turn=True)
    _, info = env.reset(options={"task": 0})
    assert (info["has_turn"], info["num_skipped"]) == (False, 0)


def test_agent_that_never_comes_to_its_turn_is_an_error() -> None:
    env = AgentEnv(Relay([Beat("a_0", {}, all_end())]), agent="b_0", policies={"a": word}, skip_without_turn=True)
    with pytest.raises(MasEnvsError, match="b_0 had no turn in 1000 episodes in a row; expected one that reaches it"):
        env.reset(seed=0)
