"""TRL: one agent of a team trained by `GRPOTrainer`, its team-mates played by policies that are not.

    team = TeamRollouts(make_env, agent="solver", policies={"verifier": Skill()})
    trainer = GRPOTrainer(model, team.reward, args, team.dataset(), rollout_func=team, callbacks=[team.watch], ...)

What TRL cannot say: it wants one sequence for each prompt. So all turns of the agent in an episode become one sequence,
the agent sees its own earlier turns as chat history, and what it was shown in between is masked (`env_mask`). The
bundled trainer makes one row of each turn instead.
"""

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from pettingzoo import AECEnv

from adapters.gymnasium import AgentEnv
from adapters.versions import refuse_untested
from mas_envs.conversation import Skill
from mas_envs.errors import BadArgumentError, MasEnvsError, MissingExtraError
from mas_envs.policies import AgentPolicy

__all__ = ["RolloutsNotUsedError", "TeamRollouts", "TrlVersionError", "check_version"]

SUPPORTED = ((1, 16), (1, 17))


class TrlVersionError(MasEnvsError, ImportError):
    """TRL is installed in a version whose rollout contract was not tested."""


class RolloutsNotUsedError(MasEnvsError, RuntimeError):
    """The trainer has made a step without asking for rollouts: it trains on completions that met no environment."""


def check_version(version: str | None = None) -> None:
    """Refuse a TRL that was not tested.

    Args:
        version: None is the one that is installed.

    Raises:
        MissingExtraError: If there is none.
        TrlVersionError: Names the version and those that are supported.
    """
    try:
        found = version or importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraError("adapters.trl needs trl; pip install 'mas-envs[trl]'") from error
    refuse_untested("trl", found, SUPPORTED, TrlVersionError)


@dataclass
class _Playing:
    """An episode under way, as one sequence of tokens."""

    env: AgentEnv
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_own: list[int] = field(default_factory=list)
    reward: float = 0.0
    success: bool | None = None
    is_over: bool = False


class TeamRollouts:
    """A rollout function for `GRPOTrainer`: whole episodes of a team in which the trained model plays one agent.

    Args:
        make_env: Builds an AEC environment whose observations hold `messages` and whose actions are text.
        agent: The trained agent, or its role.
        policies: What plays the others; see `mas_envs.play`. Those that no key names are scripted experts.
        max_turn_tokens: Most tokens of one turn.
        temperature: Of the sampling; must be the trainer's.

    Raises:
        MissingExtraError: Without TRL.
        TrlVersionError: If TRL was not tested.
        BadArgumentError: If there is no such agent, or another has neither policy nor expert.
    """

    def __init__(
        self,
        make_env: Callable[[], AECEnv[Any, Any, Any]],
        *,
        agent: str,
        policies: Mapping[str, AgentPolicy | Skill] | None = None,
        max_turn_tokens: int = 256,
        temperature: float = 1.0,
    ) -> None:
        check_version()
        self._make, self._agent, self._policies = make_env, agent, dict(policies or {})
        self._max_turn_tokens, self._temperature = max_turn_tokens, temperature
        self._free = [self._build()]
        self._tasks = make_env().unwrapped.tasks
        self._index = {str(task.question): index for index, task in enumerate(self._tasks)}
        self.num_calls = 0
        """Times the trainer has asked for rollouts."""

    def dataset(self, num_tasks: int | None = None) -> Any:  # Any: datasets comes with an extra
        """A `datasets.Dataset` with a row for each task; TRL hands the rollout function these prompts."""
        from datasets import Dataset

        chosen = self._tasks[: num_tasks or len(self._tasks)]
        return Dataset.from_dict({"prompt": [[{"role": "user", "content": str(task.question)}] for task in chosen]})

    def reward(self, completions: Any, episode_reward: Sequence[float] | None = None, **ignored: Any) -> list[float]:
        """A reward function for the trainer: what the agent earned in each episode.

        Raises:
            RolloutsNotUsedError: If the completions do not come from this rollout function.
        """
        if episode_reward is None:
            raise RolloutsNotUsedError(
                "the trainer generated completions by itself; expected those of the rollout function: pass "
                "rollout_func=team to GRPOTrainer"
            )
        return list(episode_reward)

    @property
    def watch(self) -> Any:  # Any: a transformers callback
        """A callback that stops training when the trainer makes a step without rollouts."""
        from transformers import TrainerCallback

        team = self

        class Watch(TrainerCallback):
            def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
                if not team.num_calls:
                    raise RolloutsNotUsedError(
                        "the trainer made a step and never called the rollout function; pass rollout_func=team to "
                        "GRPOTrainer"
                    )

        return Watch()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play an episode for each prompt; called by TRL.

        Raises:
            BadArgumentError: If a prompt is no task of the environment.
        """
        self.num_calls += 1
        tokenizer = trainer.processing_class
        episodes = [self._begin(prompt, tokenizer) for prompt in prompts]
        model = trainer.accelerator.unwrap_model(trainer.model)
        was_training = model.training
        model.eval()
        while waiting := [episode for episode in episodes if not episode.is_over]:
            for episode, (ids, logprobs) in zip(waiting, self._generate(model, tokenizer, waiting), strict=True):
                self._act(episode, ids, logprobs, tokenizer)
        model.train(was_training)
        self._free += [episode.env for episode in episodes]
        return {
            "prompt_ids": [episode.prompt_ids for episode in episodes],
            "completion_ids": [episode.completion_ids for episode in episodes],
            "logprobs": [episode.logprobs for episode in episodes],
            "env_mask": [episode.is_own for episode in episodes],
            "episode_reward": [episode.reward for episode in episodes],
            "episode_success": [episode.success for episode in episodes],
        }

    def _build(self) -> AgentEnv:
        return AgentEnv(self._make(), agent=self._agent, policies=self._policies, skip_without_turn=False)

    def _begin(self, prompt: Any, tokenizer: Any) -> _Playing:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if text not in self._index:
            raise BadArgumentError(f"prompt {text!r:.80} is no task of the environment; use dataset() of this object")
        env = self._free.pop() if self._free else self._build()
        observation, info = env.reset(options={"task": self._index[text]})
        if not info["has_turn"]:
            raise BadArgumentError(f"{self._agent} has no turn in task {text!r:.80}; train an agent that always acts")
        return _Playing(env, _render(tokenizer, observation["messages"]))

    def _act(self, episode: _Playing, ids: list[int], logprobs: list[float], tokenizer: Any) -> None:
        episode.completion_ids += ids
        episode.logprobs += logprobs
        episode.is_own += [1] * len(ids)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        observation, reward, terminated, truncated, info = episode.env.step(text)
        episode.reward += float(reward)
        episode.is_over = bool(terminated or truncated)
        if episode.is_over:
            episode.success = info.get("success")
            return
        shown = _render(tokenizer, observation["messages"])
        episode.completion_ids += shown
        episode.logprobs += [0.0] * len(shown)
        episode.is_own += [0] * len(shown)

    def _generate(
        self, model: Any, tokenizer: Any, episodes: Sequence[_Playing]
    ) -> list[tuple[list[int], list[float]]]:
        """Token ids and logprobs of one turn in each episode."""
        contexts = [episode.prompt_ids + episode.completion_ids for episode in episodes]
        width = max(map(len, contexts))
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        padded = [[pad] * (width - len(ids)) + ids for ids in contexts]
        mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in contexts]
        with torch.no_grad():
            out = model.generate(
                input_ids=torch.tensor(padded, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                max_new_tokens=self._max_turn_tokens,
                do_sample=True,
                temperature=self._temperature,
                top_k=0,
                top_p=1.0,
                pad_token_id=pad,
                return_dict_in_generate=True,
                output_scores=True,
            )
        scores = torch.log_softmax(torch.stack(out.scores, dim=1).float(), dim=-1)
        sampled = out.sequences[:, width:]
        chosen = scores.gather(-1, sampled[..., None])[..., 0]
        turns = []
        for ids, logprobs in zip(sampled.tolist(), chosen.tolist(), strict=True):
            end = ids.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in ids else len(ids)
            turns.append((ids[:end], logprobs[:end]))
        return turns


def _render(tokenizer: Any, messages: Any) -> list[int]:
    text = tokenizer.apply_chat_template([dict(m) for m in messages], add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids
