"""Sums so small that an agent says each whole answer with one token: something that RLlib learns from nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from adapters.rllib.multi_agent_env import TeamEnv
from mas_envs import Task
from mas_envs.tasks import TaskSet

__all__ = ["small_sums", "success_frac"]


def small_sums(env_id: str = "MathLoop-v0", *, largest: int = 5) -> dict[str, Any]:
    r"""The `env_config` of sums up to `largest` + `largest` in a math environment, one phrase for each whole action.

    >>> small_sums(largest=1)["phrases"][:5]
    ['\\boxed{0}', '\\boxed{1}', '\\boxed{2}', '<verify>approve</verify>', '<verify>reject</verify>']

    Args:
        env_id: `MathLoop-v0`, `MathSolo-v0` or `MathRefine-v0`.
        largest: The largest number that is added.
    """
    numbers, results = range(largest + 1), range(2 * largest + 1)
    tasks = [Task(f"{a}+{b}", f"{a}+{b}", str(a + b), "sums") for a in numbers for b in numbers]
    said = [f"\\boxed{{{value}}}" for value in results] + ["<verify>approve</verify>", "<verify>reject</verify>"]
    shown = [f"<{solver}>{value}</{solver}>" for solver in ("solver_0", "refiner_0") for value in [*results, "?"]]
    shown += [f"<verifier_0>{verdict}</verifier_0>" for verdict in ("approve", "reject", "?")]
    return {
        "id": env_id,
        "kwargs": {"tasks": TaskSet(tasks, name="small sums"), "prompt_style": "short"},
        "phrases": [*said, *shown, "+", *map(str, numbers)],
        "max_prompt_tokens": 6,
        "max_new_tokens": 1,
    }


def success_frac(
    module_of: Callable[[str], Any], env_config: dict[str, Any], *, num_episodes: int = 200, seed: int = 0
) -> float:
    """Share of episodes that are solved when every agent samples from its policy, as in training.

    The likeliest tokens say less: an indifferent verifier that approves ends episodes before the trained retry.

    Args:
        module_of: Agent id -> RLlib module that plays it.
        env_config: See `TeamEnv`.
        num_episodes: Episodes to play.
        seed: Seed of the first episode; those of the others follow it.
    """
    env = TeamEnv(env_config)
    generator = torch.Generator().manual_seed(seed)
    solved = 0
    for episode in range(num_episodes):
        observations, infos = env.reset(seed=seed + episode)
        while env.aec.agents:
            agent_id = env.aec.agent_selection
            action = _sampled(module_of(agent_id), observations[agent_id], generator)
            observations, _, _, _, infos = env.step({agent_id: action})
        solved += any(info.get("success") is True for info in infos.values())
    env.close()
    return solved / num_episodes


def _sampled(module: Any, observation: Any, generator: torch.Generator) -> int:
    with torch.no_grad():
        out = module.forward_inference({"obs": torch.as_tensor(np.asarray(observation))[None]})
    return int(torch.multinomial(out["action_dist_inputs"].softmax(-1), 1, generator=generator))
