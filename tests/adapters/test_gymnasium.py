"""The Gymnasium adapter: Gymnasium's own checker, `make`, vectors, policies of the others, tokens, bad input."""

import copy
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

import mas_envs
from adapters.gymnasium import AgentEnv, make_agent_env, register_envs
from mas_envs import PolicyError, Skill
from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError
from mas_envs.spaces import Message
from mas_envs.wrappers import TokenEncoding
from tests.mas_envs.checker.good_envs import Review
from tests.mas_envs.wrappers.contract import (
    APPROVE,
    REJECT,
    SOLUTION,
    WRONG,
    Echo,
    math_loop,
    proposers,
    right_is_right,
)

BUILT_IN = ["HierarchicalSearch-v0", "MathLoop-v0", "MathSolo-v0", "SearchSolo-v0"]
SMALL = {"max_prompt_tokens": 32, "max_new_tokens": 8}


def rejects(messages: tuple[Message, ...]) -> str:
    return REJECT


def approves(messages: tuple[Message, ...]) -> str:
    return APPROVE


def rejects_the_wrong(messages: tuple[Message, ...]) -> str:
    return REJECT if "wrong" in messages[-1]["content"] else APPROVE


def sum_in(prompt: str) -> int:
    found = re.search(r"(\d+)\+(\d+)", prompt)
    assert found
    return int(found[1]) + int(found[2])


@pytest.fixture
def own_ids() -> Any:
    """Both registries as they were, whatever a test adds."""
    before, gym_before = dict(mas_envs.registry._specs), dict(gymnasium.registry)
    yield
    mas_envs.registry._specs = before
    gymnasium.registry.clear()
    gymnasium.registry.update(gym_before)


@pytest.mark.parametrize("env_id", BUILT_IN)
def test_built_in_environments_pass_the_checker_of_gymnasium(env_id: str) -> None:
    check_env(gymnasium.make(f"mas_envs:{env_id}").unwrapped)


@pytest.mark.parametrize(
    "options",
    [
        {"agent": "verifier"},
        {"policies": {"verifier": Skill(accuracy=0.5, malformed=0.5)}},
        {"policies": {"*": rejects}, "max_loops": 3},
        {"tokens": SMALL},
        {"agent": "verifier", "tokens": SMALL},
    ],
    ids=str,
)
def test_every_kind_of_view_passes_the_checker_of_gymnasium(options: dict[str, Any]) -> None:
    check_env(gymnasium.make("mas_envs:MathLoop-v0", **options).unwrapped)


def test_environment_that_was_not_made_by_id_passes_the_checker_too() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(AgentEnv(Review(), agent="critic"))
    assert all("due to the environment not having a spec" in str(warning.message) for warning in caught)


def test_make_imports_what_it_needs_by_itself() -> None:
    script = (
        "import sys, gymnasium\n"
        "import mas_envs\n"
        "assert 'adapters' not in sys.modules\n"
        "env = gymnasium.make('mas_envs:MathLoop-v0')\n"
        "print(env.reset(seed=0)[1]['has_turn'], 'torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_make_passes_arguments_on_to_the_environment() -> None:
    env = gymnasium.make(
        "mas_envs:MathLoop-v0", agent="verifier", max_loops=5, tasks={"name": "arithmetic", "level": 3}
    )
    view = env.unwrapped
    assert isinstance(view, AgentEnv)
    assert (view.agent_id, view.team_env.unwrapped.max_loops) == ("verifier_0", 5)


def test_first_agent_is_the_default() -> None:
    assert AgentEnv(mas_envs.make("MathLoop-v0")).agent_id == "solver_0"


def test_episode_is_limited_by_gymnasium_in_turns_of_the_agent() -> None:
    env = gymnasium.make("mas_envs:MathLoop-v0", max_episode_steps=2, max_loops=9, policies={"verifier": rejects})
    env.reset(seed=0)
    assert [env.step(WRONG)[3] for _ in range(2)] == [False, True]


def test_statistics_wrapper_of_gymnasium_counts_the_team_reward() -> None:
    env = RecordEpisodeStatistics(AgentEnv(math_loop(), policies={"verifier": approves}))
    env.reset(seed=0)
    info = env.step(SOLUTION)[4]
    assert (info["episode"]["r"], info["episode"]["l"], info["success"]) == (1.0, 1, True)


def test_importing_the_adapter_as_a_module_prefix_works_as_well() -> None:
    assert isinstance(gymnasium.make("adapters.gymnasium:MathSolo-v0").unwrapped, AgentEnv)


@pytest.mark.usefixtures("own_ids")
def test_own_environment_is_known_to_gymnasium_once_it_is_asked_for() -> None:
    mas_envs.register("GymReview-v0", Review)
    assert "GymReview-v0" not in gymnasium.registry
    register_envs()
    view = gymnasium.make("GymReview-v0", agent="critic").unwrapped
    assert isinstance(view, AgentEnv)
    assert isinstance(view.team_env, Review)


@pytest.mark.usefixtures("own_ids")
def test_id_that_gymnasium_has_already_is_left_as_it_is() -> None:
    mas_envs.register("CartPole-v1", Review)
    register_envs()
    assert "cartpole" in str(gymnasium.registry["CartPole-v1"].entry_point)


def test_vector_batches_text_and_infos() -> None:
    envs = gymnasium.make_vec(
        "mas_envs:MathLoop-v0", num_envs=3, grader=right_is_right, policies={"verifier": approves}
    )
    assert isinstance(envs, SyncVectorEnv)
    observations: Any
    observations, infos = envs.reset(seed=0)
    assert observations in envs.observation_space
    assert len({messages[0]["content"] for messages in observations["messages"]}) == 3
    assert infos["has_turn"].tolist() == [True] * 3
    actions = (SOLUTION, WRONG, "no box")
    assert actions in envs.action_space
    rewards: Any
    _, rewards, terminated, truncated, infos = envs.step(actions)
    assert rewards.tolist() == [1.0, 0.0, pytest.approx(-0.1)]
    assert (all(terminated), any(truncated)) == (True, False)
    assert infos["success"].tolist() == [True, False, False]
    assert infos["reward_terms"]["invalid"].tolist() == [0.0, 0.0, -0.1]
    envs.close()


def test_vector_starts_the_next_episode_by_itself() -> None:
    envs = gymnasium.make_vec("mas_envs:MathSolo-v0", num_envs=2, grader=right_is_right)
    envs.reset(seed=0)
    envs.step((WRONG, WRONG))
    observations, rewards, terminated, _, infos = envs.step((SOLUTION, SOLUTION))
    assert (rewards.tolist(), terminated.any()) == ([0.0, 0.0], False)
    assert "success" not in infos
    assert envs.step((SOLUTION, SOLUTION))[1].tolist() == [1.0, 1.0]
    assert observations in envs.observation_space


def test_success_that_is_not_known_yet_is_not_taken_for_a_failure_in_vector_infos() -> None:
    envs = gymnasium.make_vec(
        "mas_envs:MathLoop-v0", num_envs=2, grader=right_is_right, policies={"verifier": rejects_the_wrong}
    )
    envs.reset(seed=0)
    infos = envs.step((SOLUTION, WRONG))[4]
    assert infos["success"].tolist() == [True, False]
    assert infos["_success"].tolist() == [True, False]


def test_what_a_vector_notes_in_its_metadata_reaches_no_other_environment() -> None:
    gymnasium.make_vec("mas_envs:MathSolo-v0", num_envs=1)
    assert "autoreset_mode" not in AgentEnv.metadata
    assert AgentEnv(mas_envs.make("MathSolo-v0")).metadata == {"render_modes": ["human", "ansi"], "render_fps": 1}


def test_vector_of_processes_takes_text_without_shared_memory() -> None:
    envs = gymnasium.make_vec(
        "mas_envs:MathSolo-v0", num_envs=2, vectorization_mode="async", vector_kwargs={"shared_memory": False}
    )
    observations, infos = envs.reset(seed=0)
    answers = [f"\\boxed{{{sum_in(messages[0]['content'])}}}" for messages in observations["messages"]]
    assert len(infos["task_id"]) == 2
    assert envs.step(tuple(answers))[1].tolist() == [1.0, 1.0]
    envs.close()


def test_vector_of_token_views_is_a_batch_of_arrays() -> None:
    envs = gymnasium.make_vec("mas_envs:MathLoop-v0", num_envs=2, tokens=SMALL)
    observations, _ = envs.reset(seed=0)
    assert (observations.shape, observations.dtype) == ((2, 32), np.int64)
    observations, rewards, *_ = envs.step(np.array([50, 60]))
    assert observations[:, -1].tolist() == [50, 60]
    assert rewards.tolist() == [0.0, 0.0]


def test_token_view_pays_when_the_turn_is_complete() -> None:
    env = AgentEnv(math_loop(), policies={"verifier": approves}, tokens={"max_prompt_tokens": 16, "max_new_tokens": 99})
    env.reset(seed=0)
    tokenizer = env._view.tokenizer
    outcomes = [env.step(token)[1:3] for token in [*tokenizer.encode(SOLUTION), tokenizer.eos_token_id]]
    assert outcomes == [(0.0, False)] * (len(outcomes) - 1) + [(1.0, True)]
    assert env.team_env.unwrapped.transcript[0].text == SOLUTION


def test_others_are_played_by_callables_roles_and_experts() -> None:
    env = AgentEnv(proposers(), agent="aggregator", policies={"solver": lambda messages: "pear"})
    observation, _ = env.reset(seed=0)
    assert observation["messages"][0]["content"].count("pear") == 3
    expert = AgentEnv(mas_envs.make("MathLoop-v0"), agent="verifier")
    observation, _ = expert.reset(seed=0)
    assert "I work it out and get" in observation["messages"][0]["content"]


def test_mediocre_experts_make_the_same_mistakes_for_the_same_seed() -> None:
    env = AgentEnv(mas_envs.make("MathLoop-v0"), agent="verifier", policies={"solver": Skill(accuracy=0.5)})
    first = [env.reset(seed=7 if episode == 0 else None)[0] for episode in range(5)]
    again = [env.reset(seed=7 if episode == 0 else None)[0] for episode in range(5)]
    assert first == again


def test_copy_in_mid_episode_goes_its_own_way_with_experts_of_its_own() -> None:
    env = AgentEnv(math_loop(), policies={"verifier": Skill()})
    env.reset(seed=0)
    env.step(WRONG)
    twin = copy.deepcopy(env)
    assert twin.step(SOLUTION)[1:3] == (1.0, True)
    assert len(env.team_env.unwrapped.transcript) == 2
    assert env.step(WRONG)[1:3] == (0.0, True)


def test_failing_mate_is_named_and_the_episode_cannot_go_on() -> None:
    env = AgentEnv(math_loop(), policies={"verifier": lambda messages: 7})  # type: ignore[dict-item]
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="the policy of verifier_0 returned 7 of type int in turn 1"):
        env.step(WRONG)
    with pytest.raises(EpisodeOrderError, match="after the end of the episode"):
        env.step(SOLUTION)
    assert env.reset(seed=0)[1]["has_turn"]


def test_action_of_the_wrong_type_is_refused_and_costs_nothing() -> None:
    env = AgentEnv(math_loop(), policies={"verifier": approves})
    env.reset(seed=0)
    with pytest.raises(
        InvalidActionError, match=r"action 7 of type int for solver_0; expected the completion as a str"
    ):
        env.step(7)
    assert env.step(SOLUTION)[1] == 1.0


def test_render_shows_the_last_turn() -> None:
    env = gymnasium.make("mas_envs:MathLoop-v0", render_mode="ansi", policies={"verifier": approves})
    env.reset(seed=0)
    env.step("hello")
    shown: Any = env.render()
    assert shown == f"[2] verifier_0: {APPROVE}\n"


@pytest.mark.parametrize("agent", ["judge", "solver"])
def test_agent_that_is_not_one_is_refused(agent: str) -> None:
    text = (
        f"agent='{agent}': expected one agent, or a role that one agent has; choose among solver_0, solver_1, solver_2"
    )
    with pytest.raises(BadArgumentError, match=text):
        AgentEnv(proposers(), agent=agent)


def test_policy_for_the_agent_itself_is_refused() -> None:
    text = r"policies\['solver'\]: solver_0 is the agent that is left to act; expected policies for the others: take it"
    with pytest.raises(BadArgumentError, match=text):
        AgentEnv(math_loop(), policies={"solver": approves, "verifier": approves})


def test_role_shared_with_others_may_be_named() -> None:
    view = AgentEnv(proposers(), agent="solver_1", policies={"solver": approves, "aggregator": approves})
    assert view.reset()[1]["has_turn"]


def test_id_instead_of_an_environment_is_refused() -> None:
    with pytest.raises(
        BadArgumentError, match=r"env='MathLoop-v0': expected an AEC environment; make one with mas_envs"
    ):
        AgentEnv("MathLoop-v0")


def test_environment_that_takes_no_text_is_refused() -> None:
    with pytest.raises(BadArgumentError, match=r"AgentEnv of .*: solver_0 is shown Box.*; expected a Dict with"):
        AgentEnv(TokenEncoding(math_loop(), max_prompt_tokens=8, max_new_tokens=8))


def test_missing_policy_is_named() -> None:
    with pytest.raises(BadArgumentError, match="no policy for listener_0, and echo_v0 has no scripted experts"):
        AgentEnv(Echo())


def test_argument_that_the_environment_does_not_take_is_named() -> None:
    with pytest.raises(TypeError, match=r"does not take the argument 'max_loop'; did you mean 'max_loops'"):
        make_agent_env("MathLoop-v0", max_loop=3)
