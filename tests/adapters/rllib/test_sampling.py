"""RLlib's env runner plays our environments, cut into fragments of any length; no Ray is started."""

import collections
from collections.abc import Sequence

import pytest

pytest.importorskip("ray", reason="needs mas-envs[rllib]")

import ray
import torch
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

import mas_envs
from adapters.rllib import TeamEnv, policy_by_role, ppo_config, small_sums
from tests.adapters.relay import Beat, all_end
from tests.adapters.rllib.relays import recorded, relay_config, runner_of, true_returns
from tests.mas_envs.checker.good_envs import OneByOne

BYTES = {"max_prompt_tokens": 24, "max_new_tokens": 6}
ENDINGS = {
    "one terminates, one is truncated": [
        Beat("a_0", {"b_0": 1}),
        Beat("b_0", {"a_0": 2}, {"a_0": "terminated", "b_0": "truncated"}),
    ],
    "one ends before the first turn of the other": [
        Beat("a_0", {"b_0": 1}, {"a_0": "terminated"}),
        Beat("b_0", {"b_0": 2}),
        Beat("b_0", {"b_0": 4}, {"b_0": "truncated"}),
    ],
    "all are truncated": [Beat("a_0"), Beat("b_0", {"a_0": 1}), Beat("a_0", {"b_0": 2}, all_end("truncated"))],
    "one never has a turn": [Beat("a_0", {"a_0": 1, "b_0": 2}), Beat("a_0", {}, all_end())],
    "one leaves, one goes on": [
        Beat("a_0"),
        Beat("b_0", {"a_0": 1}, {"a_0": "truncated"}),
        Beat("b_0", {"b_0": 2}),
        Beat("b_0", {}, {"b_0": "terminated"}),
    ],
}


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("fragment", [1, 2, 7])
@pytest.mark.parametrize("ending", ENDINGS)
def test_fragments_lose_no_reward_and_no_step(ending: str, fragment: int, num_envs: int) -> None:
    script = ENDINGS[ending]
    config = ppo_config(relay_config(script, first_pays={"a_0": 8, "b_0": 16}))
    runner = runner_of(config.env_runners(num_envs_per_env_runner=num_envs))
    earned: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    num_turns, finished = collections.Counter[str](), set[str]()
    while len(finished) < 6:
        for chunk in runner.sample(num_timesteps=fragment):
            if chunk.is_done:
                finished.add(chunk.id_)
            for agent_id, part in chunk.agent_episodes.items():
                earned[chunk.id_][agent_id] += sum(part.get_rewards())
                num_turns[chunk.id_] += len(part)
    speakers = {beat.agent_id for beat in script}
    expected = {
        agent_id: value
        for agent_id, value in true_returns(script, first_pays={"a_0": 8, "b_0": 16}).items()
        if agent_id in speakers
    }
    for episode_id in finished:
        assert dict(earned[episode_id]) == expected
        assert num_turns[episode_id] == len(script)


def test_three_agents_that_leave_one_by_one_get_what_they_earn() -> None:
    phrases = ["word", *map(str, range(10))]
    env = TeamEnv({"env": OneByOne(), "phrases": phrases, "max_prompt_tokens": 4, "max_new_tokens": 1})
    episode, _ = recorded(env)
    true = mas_envs.play(OneByOne(), {"*": lambda messages: "word"}, seed=0).returns
    assert {agent_id: part.get_return() for agent_id, part in episode.agent_episodes.items()} == true


@pytest.mark.parametrize("env_id", ["MathLoop-v0", "MathSolo-v0", "HierarchicalSearch-v0", "SearchSolo-v0"])
def test_built_in_environments_pass_the_check_of_rllib(env_id: str) -> None:
    env = TeamEnv({"id": env_id, **BYTES})
    check_multiagent_environments(env)
    assert env.observation_space["searcher_0" if "Search" in env_id else "solver_0"].shape == (24,)


def test_turns_of_many_tokens_are_one_transition_a_token() -> None:
    runner = runner_of(ppo_config({"id": "MathLoop-v0", **BYTES}))
    episodes = [episode for episode in runner.sample(num_timesteps=200) if episode.is_done]
    assert episodes
    for episode in episodes:
        solver = episode.agent_episodes["solver_0"]
        actions, observations, rewards = solver.get_actions(), solver.get_observations(), solver.get_rewards()
        ends = ends_of_turns(actions)
        for index in set(range(len(actions))) - set(ends):
            assert observations[index + 1][-1] == actions[index]
            assert rewards[index] == 0.0
        assert [rewards[index] for index in ends] == pytest.approx([-0.1] * len(ends))  # no byte soup is a box


def ends_of_turns(actions: Sequence[int]) -> list[int]:
    """Indices of the tokens that end a turn: the end id, or the sixth."""
    found, length = [], 0
    for index, action in enumerate(actions):
        length += 1
        if action == 1 or length == 6:
            found.append(index)
            length = 0
    return found


def test_successive_samples_draw_other_tasks() -> None:
    runner = runner_of(ppo_config(small_sums()).debugging(seed=0).env_runners(rollout_fragment_length=8))
    seen = [
        [
            list(episode.agent_episodes["solver_0"].get_observations(0))
            for episode in runner.sample()
            if episode.is_done and len(episode.agent_episodes) == 2
        ]
        for _ in range(2)
    ]
    assert seen[0][:8] != seen[1][:8]


def test_new_policies_are_indifferent_between_all_tokens() -> None:
    runner = runner_of(ppo_config(small_sums(), model_config={"dim": 3, "hidden": 5}))
    seen = {"obs": torch.tensor([[2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 7]])}
    for role in ("solver", "verifier"):
        module = runner.module[role]
        assert module.embedding.embedding_dim == 3
        assert module.forward_inference(seen)["action_dist_inputs"].unique().tolist() == [0.0]
        assert module.compute_values(seen).shape == (2,)


def test_same_seed_gives_the_same_sample() -> None:
    samples = []
    for _ in range(2):
        runner = runner_of(ppo_config(small_sums()).debugging(seed=3))
        samples.append(
            [
                (agent_id, list(map(int, part.get_actions())), [list(seen) for seen in part.get_observations()])
                for episode in runner.sample(num_timesteps=64)
                for agent_id, part in episode.agent_episodes.items()
            ]
        )
    assert samples[0] == samples[1]


def test_copies_of_an_environment_that_is_given_do_not_share_their_state() -> None:
    given = mas_envs.make("MathLoop-v0")
    first, second = (TeamEnv({"env": given, **BYTES}) for _ in range(2))
    first.reset(seed=0)
    second.reset(seed=1)
    assert first.aec.unwrapped is not second.aec.unwrapped
    assert first.aec.infos["solver_0"]["task_id"] != second.aec.infos["solver_0"]["task_id"]


def test_policies_follow_roles_or_are_one() -> None:
    config = ppo_config(small_sums("MathRefine-v0"))
    assert sorted(config.policies) == ["refiner", "solver", "verifier"]
    assert config.policy_mapping_fn("verifier_0", None) == "verifier"
    shared = ppo_config(small_sums("MathRefine-v0"), shared=True)
    assert {shared.policy_mapping_fn(f"{role}_0", None) for role in config.policies} == set(shared.policies)
    assert [policy_by_role(agent_id) for agent_id in ("solver_0", "solver_12", "web_searcher_0")] == [
        "solver",
        "solver",
        "web_searcher",
    ]


def test_nothing_of_this_needs_a_running_ray() -> None:
    runner_of(ppo_config(small_sums())).sample(num_timesteps=8)
    assert not ray.is_initialized()
