"""RLlib's own record of episodes in which agents end in every order and manner; no Ray is started."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="needs mas-envs[rllib]")

from adapters.rllib import TeamEnv
from mas_envs.errors import EpisodeOrderError
from tests.adapters.relay import Beat, Relay, all_end
from tests.adapters.rllib.relays import outcome, recorded, relay_config, true_returns

TERMINATED, TRUNCATED = (True, False), (False, True)


def test_one_agent_terminates_while_the_other_is_truncated() -> None:
    script = [Beat("a_0"), Beat("b_0", {"a_0": 1, "b_0": 2}, {"a_0": "terminated", "b_0": "truncated"})]
    ends = outcome(script)
    assert {agent_id: end[0] for agent_id, end in ends.items()} == {"a_0": 1.0, "b_0": 2.0}
    assert ends["a_0"][1] is True
    assert ends["b_0"][1:] == TRUNCATED


def test_agent_that_ends_before_the_first_turn_of_the_other() -> None:
    script = [
        Beat("a_0", {"a_0": 1, "b_0": 2}, {"a_0": "terminated"}),
        Beat("b_0", {"b_0": 4}),
        Beat("b_0", {"b_0": 8}, {"b_0": "terminated"}),
    ]
    assert outcome(script) == {"a_0": (1.0, *TERMINATED), "b_0": (14.0, *TERMINATED)}


def test_truncation_of_everybody_is_no_termination() -> None:
    script = [Beat("a_0"), Beat("b_0", {"a_0": 1}, all_end("truncated"))]
    assert outcome(script) == {"a_0": (1.0, *TRUNCATED), "b_0": (0.0, *TRUNCATED)}


def test_termination_of_everybody_is_no_truncation() -> None:
    script = [Beat("a_0"), Beat("b_0", {"a_0": 1}, all_end())]
    assert outcome(script) == {"a_0": (1.0, *TERMINATED), "b_0": (0.0, *TERMINATED)}


@pytest.mark.parametrize("first", ["a_0", "b_0"])
def test_rewards_before_the_first_observation_are_in_the_first_transition(first: str) -> None:
    other = "b_0" if first == "a_0" else "a_0"
    script = [Beat(first, {other: 4}), Beat(other), Beat(first, {}, all_end())]
    episode, _ = recorded(TeamEnv(relay_config(script, first_pays={"a_0": 1, "b_0": 2})))
    early = {"a_0": 1.0, "b_0": 2.0}
    assert list(episode.agent_episodes[first].get_rewards()) == [early[first], 0.0]
    assert list(episode.agent_episodes[other].get_rewards()) == [4.0 + early[other]]


def test_reward_of_an_agent_without_a_turn_is_reported_beside_the_record() -> None:
    script = [Beat("a_0", {"a_0": 1, "b_0": 2}, all_end())]
    episode, common = recorded(TeamEnv(relay_config(script, first_pays={"b_0": 4})))
    assert list(episode.agent_episodes) == ["a_0"]
    assert common == {"reward_without_a_turn": {"b_0": 6.0}}


@pytest.mark.parametrize("linger", [False, True])
def test_one_agent_leaves_and_the_other_goes_on(linger: bool) -> None:
    script = [
        Beat("a_0"),
        Beat("b_0", {"a_0": 1}, {"a_0": "truncated"}),
        Beat("b_0", {"a_0": 2 if linger else 0, "b_0": 4}),
        Beat("b_0", {}, {"b_0": "terminated"}),
    ]
    ends = outcome(script, linger=linger)
    assert ends["a_0"] == (3.0 if linger else 1.0, *TRUNCATED)
    assert ends["b_0"][:2] == (4.0, True)


@st.composite
def scripts(draw: st.DrawFn) -> list[Beat]:
    """Any script in which only live agents speak, and the last turn ends whoever is left."""
    alive: list[str] = ["a_0", "b_0"]
    beats: list[Beat] = []
    while alive:
        speaker = draw(st.sampled_from(alive))
        pays = draw(st.dictionaries(st.sampled_from(alive), st.integers(-3, 3)))
        leaving = draw(st.lists(st.sampled_from(alive), unique=True)) if len(beats) < 5 else list(alive)
        ends: Any = {agent_id: draw(st.sampled_from(["terminated", "truncated"])) for agent_id in leaving}
        beats.append(Beat(speaker, pays, ends))
        alive = [agent_id for agent_id in alive if agent_id not in leaving]
    return beats


first_payments = st.dictionaries(st.sampled_from(["a_0", "b_0"]), st.integers(-3, 3))


@given(script=scripts(), first_pays=first_payments, linger=st.booleans())
def test_every_ending_keeps_every_reward_and_every_flag(
    script: list[Beat], first_pays: dict[str, float], linger: bool
) -> None:
    options: dict[str, Any] = {"first_pays": first_pays, "linger": linger}
    episode, common = recorded(TeamEnv(relay_config(script, **options)))
    found = {agent_id: part.get_return() for agent_id, part in episode.agent_episodes.items()}
    assert found.keys() == {beat.agent_id for beat in script}
    assert {**common.get("reward_without_a_turn", {}), **found} == true_returns(script, **options)
    how = {agent_id: end for beat in script for agent_id, end in beat.ends.items()}
    for agent_id, part in episode.agent_episodes.items():
        assert part.is_terminated == (how[agent_id] == "terminated")
        assert part.is_truncated or how[agent_id] == "terminated"
        assert len(part) == sum(beat.agent_id == agent_id for beat in script)


def test_infos_of_reset_and_of_the_end_are_kept() -> None:
    env = TeamEnv({"id": "MathLoop-v0", "phrases": ["nothing"], "max_prompt_tokens": 1, "max_new_tokens": 1})
    episode, _ = recorded(env)
    solver, verifier = (episode.agent_episodes[agent_id].get_infos() for agent_id in ("solver_0", "verifier_0"))
    assert solver[0]["task_id"] == verifier[0]["task_id"] == solver[-1]["task_id"]
    assert solver[-1]["success"] is False
    assert solver[-1]["reward_terms"] != {}


class Stillborn(Relay):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.terminations = dict.fromkeys(self.agents, True)


def test_episode_that_ends_with_reset_is_an_error() -> None:
    config = {**relay_config([]), "env": Stillborn([Beat("a_0")])}
    with pytest.raises(EpisodeOrderError, match=r"had no agent left after reset\(\); expected one that acts: RLlib"):
        TeamEnv(config).reset(seed=0)
