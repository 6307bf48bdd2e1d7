"""One agent trained by TRL's own GRPOTrainer inside a team."""

from pathlib import Path
from typing import Any

import pytest

import mas_envs
from adapters.trl import RolloutsNotUsedError, TeamRollouts, TrlVersionError, check_version
from mas_envs import Skill
from mas_envs.errors import BadArgumentError

ENV = {"tasks": {"name": "arithmetic", "level": 1}, "prompt_style": "short"}


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.trainers.tiny_team import make_tiny_folder

    return make_tiny_folder(tmp_path_factory.mktemp("model") / "tiny")


def make_env() -> Any:
    return mas_envs.make("MathLoop-v0", **ENV)


@pytest.mark.parametrize("version", ["1.15.2", "1.17.0", "2.0"])
def test_an_untested_version_is_refused_in_one_sentence(version: str) -> None:
    with pytest.raises(TrlVersionError, match=rf"trl {version} was not tested; expected >= 1\.16 and < 1\.17"):
        check_version(version)


def team(**changes: Any) -> TeamRollouts:
    pytest.importorskip("trl", reason="pip install 'mas-envs[trl]'")
    return TeamRollouts(make_env, agent="solver", max_turn_tokens=8, **changes)


def trainer(folder: Path, out: Path, rollouts: TeamRollouts, **changes: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    args = GRPOConfig(
        output_dir=str(out),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=64,
        max_steps=2,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        logging_steps=1,
    )
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=rollouts.reward,
        args=args,
        train_dataset=rollouts.dataset(16),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[rollouts.watch],
        **{"rollout_func": rollouts, **changes},
    )


@pytest.mark.filterwarnings("ignore")
def test_grpo_trainer_plays_whole_episodes_and_learns_from_their_rewards(tiny_folder: Path, tmp_path: Path) -> None:
    rollouts = team(policies={"verifier": Skill(accuracy=0.3)})
    grpo = trainer(tiny_folder, tmp_path, rollouts)
    played: list[dict[str, list[Any]]] = []

    def recorded(prompts: Any, owner: Any) -> dict[str, list[Any]]:
        played.append(rollouts(prompts, owner))
        return played[-1]

    grpo.rollout_func = recorded
    grpo.train()
    assert rollouts.num_calls == len(played) >= 2
    for out in played:
        assert len(out["prompt_ids"]) == 8
        for ids, logprobs, own in zip(out["completion_ids"], out["logprobs"], out["env_mask"], strict=True):
            assert len(ids) == len(logprobs) == len(own)
            assert all(value <= 0.0 for value in logprobs)
            assert {value for value, mine in zip(logprobs, own, strict=True) if not mine} <= {0.0}
    assert any(0 in own for out in played for own in out["env_mask"])
    rewards = [entry["reward"] for entry in grpo.state.log_history if "reward" in entry]
    mean = sum(played[0]["episode_reward"]) / 8
    assert rewards[0] == pytest.approx(mean, abs=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_that_ignores_the_rollouts_is_stopped(tiny_folder: Path, tmp_path: Path) -> None:
    rollouts = team()
    with pytest.raises(RolloutsNotUsedError, match="pass rollout_func=team to GRPOTrainer"):
        trainer(tiny_folder, tmp_path, rollouts, rollout_func=None).train()


def test_an_agent_that_does_not_exist_is_named() -> None:
    pytest.importorskip("trl", reason="pip install 'mas-envs[trl]'")
    with pytest.raises(BadArgumentError, match="judge"):
        TeamRollouts(make_env, agent="judge")
