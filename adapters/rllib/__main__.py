"""`python -m adapters.rllib MathLoop-v0`: both agents learn small sums with RLlib's PPO on a CPU, in minutes."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console

import mas_envs
from adapters.rllib.multi_agent_env import TeamEnv
from adapters.rllib.ppo import policy_by_role, ppo_config, start_ray
from mas_envs import Task
from mas_envs.tasks import TaskSet

__all__ = ["evaluate", "main", "small_sums"]

console = Console()
LARGEST = 5


def small_sums() -> dict[str, Any]:
    r"""What `TeamEnv` needs for sums up to 5+5 in `MathLoop-v0`: tasks, and one phrase for each whole action."""
    numbers = range(LARGEST + 1)
    tasks = [Task(f"{a}+{b}", f"{a}+{b}", str(a + b), "sums") for a in numbers for b in numbers]
    answers = [f"\\boxed{{{value}}}" for value in range(2 * LARGEST + 1)]
    verdicts = ["<verify>approve</verify>", "<verify>reject</verify>"]
    roles = ("solver_0", "refiner_0")
    shown = [f"<{role}>{value}</{role}>" for role in roles for value in range(2 * LARGEST + 1)]
    shown += ["<solver_0>?</solver_0>", "<refiner_0>?</refiner_0>"]
    heard = [f"<verifier_0>{said}</verifier_0>" for said in ("approve", "reject", "?")]
    return {
        "kwargs": {"tasks": TaskSet(tasks, name="small sums"), "prompt_style": "short"},
        "phrases": [*answers, *verdicts, *shown, *heard, "+", *map(str, numbers)],
        "max_prompt_tokens": 6,
        "max_new_tokens": 1,
    }


def evaluate(modules: Any, config: dict[str, Any], *, num_episodes: int = 200, seed: int = 0) -> float:
    """Share of episodes that are solved when every agent samples from its policy, as in training.

    The likeliest tokens say less: an indifferent verifier that approves ends episodes before the trained retry.
    """
    env = TeamEnv(config)
    generator = torch.Generator().manual_seed(seed)
    solved = 0
    for episode in range(num_episodes):
        observations, _ = env.reset(seed=seed + episode)
        while env.aec.agents:
            actions = {
                agent: _sampled(modules[policy_by_role(agent)], seen, generator) for agent, seen in observations.items()
            }
            observations, _, terminated, truncated, infos = env.step(actions)
            observations = {
                agent: seen for agent, seen in observations.items() if not (terminated[agent] or truncated[agent])
            }
        solved += any(info.get("success") is True for info in infos.values())
    return solved / num_episodes


def _sampled(module: Any, observation: Any, generator: torch.Generator) -> int:
    with torch.no_grad():
        out = module.forward_inference({"obs": torch.as_tensor(np.asarray(observation))[None]})
    return int(torch.multinomial(out["action_dist_inputs"].softmax(-1), 1, generator=generator))


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and print; returns the success at the end."""
    parser = argparse.ArgumentParser(prog="python -m adapters.rllib", description=__doc__)
    parser.add_argument("env_id", choices=["MathLoop-v0", "MathSolo-v0", "MathRefine-v0"])
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stock", action="store_true", help="RLlib's own normalisation instead of the agent-wise one")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start_ray()
    env_config = {"id": chosen.env_id, **small_sums()}
    config = ppo_config(env_config, agent_wise=not chosen.stock).debugging(seed=chosen.seed)
    algorithm = config.build_algo()
    began = time.monotonic()
    try:
        roles = sorted({policy_by_role(agent) for agent in mas_envs.make(chosen.env_id).possible_agents})
        success = evaluate({role: algorithm.get_module(role) for role in roles}, env_config)
        console.print(f"iteration   0: success {success:.1%}", highlight=False)
        for iteration in range(1, chosen.iterations + 1):
            returns = algorithm.train()["env_runners"].get("agent_episode_returns_mean", {})
            if iteration % 10 == 0 or iteration == chosen.iterations:
                success = evaluate({role: algorithm.get_module(role) for role in roles}, env_config)
                means = ", ".join(f"{agent} {value:.2f}" for agent, value in sorted(returns.items()))
                seconds = time.monotonic() - began
                console.print(
                    f"iteration {iteration:3}: success {success:.1%}; return {means}; {seconds:.0f} s", highlight=False
                )
    finally:
        algorithm.stop()
    return success


if __name__ == "__main__":
    main()
