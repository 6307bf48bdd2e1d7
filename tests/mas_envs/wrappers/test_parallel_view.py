import copy
import warnings
from typing import Any

import pytest
from pettingzoo.test import parallel_api_test

from mas_envs.errors import EpisodeOrderError, InvalidActionError, MasEnvsError
from mas_envs.wrappers import ParallelView, TokenEncoding
from tests.mas_envs.wrappers.contract import (
    APPROVE,
    REJECT,
    SOLUTION,
    WRONG,
    Echo,
    LeakyProposers,
    Proposers,
    math_loop,
    proposers,
)

EVERYONE = {"solver_0": SOLUTION, "verifier_0": APPROVE}


class Straying(Proposers):
    """Declares all solvers simultaneous, and goes on after the first."""

    @property
    def simultaneous(self) -> tuple[str, ...]:
        return ("solver_0", "solver_1", "solver_2")

    def receive(self, agent_id: str, text: str) -> Any:
        outcome = super().receive(agent_id, text)
        return type(outcome)("aggregator_0") if agent_id == "solver_0" else outcome


class Absent(Proposers):
    """Selects an agent that its declaration leaves out."""

    simultaneous = ("solver_1", "solver_2")


@pytest.mark.parametrize("make", [math_loop, Echo, proposers], ids=["loop", "echo", "proposers"])
def test_passes_the_parallel_test_of_pettingzoo(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(ParallelView(make()), num_cycles=40)


def test_only_the_selected_agent_acts() -> None:
    view = ParallelView(math_loop())
    view.reset(seed=0)
    view.step(EVERYONE)
    assert [turn.agent_id for turn in view.unwrapped.transcript] == ["solver_0"]
    assert view.active_agents == ["verifier_0"]


def test_infos_say_who_is_to_act_next() -> None:
    view = ParallelView(math_loop())
    _, infos = view.reset(seed=0)
    assert {agent_id: info["is_active"] for agent_id, info in infos.items()} == {"solver_0": True, "verifier_0": False}
    *_, infos = view.step(EVERYONE)
    assert {info["active_agent"] for info in infos.values()} == {"verifier_0"}


def test_every_step_returns_five_dictionaries_also_at_the_end_and_after_it() -> None:
    view = ParallelView(math_loop())
    view.reset(seed=0)
    for expected in ({"solver_0", "verifier_0"}, {"solver_0", "verifier_0"}, set()):
        returned = view.step(EVERYONE)
        assert [set(each) for each in returned] == [expected] * 5
    assert view.agents == []


def test_end_shows_flags_rewards_and_success() -> None:
    view = ParallelView(math_loop())
    view.reset(seed=0)
    view.step(EVERYONE)
    _, rewards, terminations, truncations, infos = view.step(EVERYONE)
    assert rewards == {"solver_0": 1.0, "verifier_0": 1.0}
    assert all(terminations.values())
    assert not any(truncations.values())
    assert infos["verifier_0"]["success"] is True
    assert infos["verifier_0"]["active_agent"] is None


def test_rewards_of_the_steps_add_up_to_those_of_the_turns() -> None:
    view = ParallelView(math_loop(reward="role"))
    view.reset(seed=0)
    totals = {"solver_0": 0.0, "verifier_0": 0.0}
    for action in (WRONG, REJECT, SOLUTION):
        for agent_id, reward in view.step(dict.fromkeys(view.agents, action))[1].items():
            totals[agent_id] += reward
    assert totals == {"solver_0": 1.0, "verifier_0": 1.0}


def test_agent_that_leaves_early_is_in_no_later_step() -> None:
    view = ParallelView(Echo())
    view.reset()
    _, _, terminations, _, _ = view.step({"speaker_0": "bye"})
    assert terminations == {"speaker_0": True, "listener_0": False}
    assert view.agents == ["listener_0"]
    assert set(view.step({"listener_0": "hm"})[0]) == {"listener_0"}


def test_simultaneous_agents_act_in_one_step() -> None:
    view = ParallelView(proposers())
    view.reset()
    assert view.active_agents == ["solver_0", "solver_1", "solver_2"]
    _, rewards, *_ = view.step({"solver_0": "a", "solver_1": "bb", "solver_2": "ccc"})
    assert rewards == {"solver_0": 1.0, "solver_1": 2.0, "solver_2": 3.0, "aggregator_0": 0.0}
    assert view.active_agents == ["aggregator_0"]
    view.step({"aggregator_0": "a"})
    assert view.agents == []


def test_leak_between_simultaneous_agents_is_an_error() -> None:
    view = ParallelView(proposers(LeakyProposers))
    view.reset()
    with pytest.raises(MasEnvsError, match="solver_1 of proposers_v0 is shown something new within a step"):
        view.step(dict.fromkeys(view.agents, "pear"))


def test_wrong_order_of_simultaneous_agents_is_an_error() -> None:
    view = ParallelView(proposers(Straying))
    view.reset()
    with pytest.raises(MasEnvsError, match="selected 'aggregator_0' although solver_1, solver_2 were declared"):
        view.step(dict.fromkeys(view.agents, "pear"))


def test_declaration_without_the_selected_agent_is_an_error() -> None:
    view = ParallelView(proposers(Absent))
    with pytest.raises(MasEnvsError, match="selected 'solver_0', which is not in its `simultaneous`"):
        view.reset()


def test_agents_that_play_tokens_are_never_simultaneous() -> None:
    view = ParallelView(TokenEncoding(proposers(), max_prompt_tokens=8, max_new_tokens=4))
    view.reset()
    assert view.active_agents == ["solver_0"]


def test_missing_action_is_refused_before_anything_happens() -> None:
    view = ParallelView(proposers())
    view.reset()
    with pytest.raises(InvalidActionError, match="no action for solver_1, solver_2; it is the turn of solver_0, "):
        view.step({"solver_0": "a"})
    assert view.unwrapped.transcript == []


def test_step_before_reset_says_so() -> None:
    with pytest.raises(EpisodeOrderError, match=r"step\(\) of ParallelView<math_loop_v0> before reset"):
        ParallelView(math_loop()).step(EVERYONE)


def test_copy_in_mid_episode_goes_its_own_way() -> None:
    view = ParallelView(math_loop())
    view.reset(seed=0)
    twin = copy.deepcopy(view)
    view.step(EVERYONE)
    assert twin.active_agents == ["solver_0"]
    assert len(view.unwrapped.transcript) == 1


def test_spaces_are_the_same_objects_each_time() -> None:
    view = ParallelView(math_loop())
    assert view.observation_spaces["solver_0"] is view.observation_space("solver_0")
    assert view.action_spaces["solver_0"] is view.action_space("solver_0")
