"""`python -m adapters.rllib MathLoop-v0`: both agents learn small sums with RLlib's PPO on a CPU, in minutes."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mas_envs.errors import MasEnvsError

__all__ = ["main"]

_ENV_IDS = ("MathLoop-v0", "MathSolo-v0", "MathRefine-v0")
console = Console(soft_wrap=True, highlight=False)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m adapters.rllib",
        description="Train all agents of a math environment on small sums with RLlib's PPO.",
        epilog="example: python -m adapters.rllib MathLoop-v0 --seed 1 --save sums",
    )
    parser.add_argument("env_id", choices=_ENV_IDS)
    parser.add_argument("--iterations", type=int, default=40, help="of 2048 turns (default 40)")
    parser.add_argument("--largest", type=int, default=5, help="largest number that is added (default 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shared", action="store_true", help="one policy for all agents instead of one for each role")
    parser.add_argument("--stock", action="store_true", help="RLlib's own normalisation instead of the agent-wise one")
    parser.add_argument("--env-runners", type=int, default=0, help="processes that play (default 0: this one)")
    parser.add_argument("--save", type=Path, help="folder for RLlib's checkpoint")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and print.

    Args:
        arguments: Those of the command line; None takes them from there.

    Returns:
        The share of episodes that are solved at the end.
    """
    chosen = _options(arguments)
    try:
        from adapters.rllib.running_ray import ray_session

        with ray_session(num_cpus=1 + chosen.env_runners):
            return _train(chosen)
    except MasEnvsError as error:
        sys.exit(f"{error}")


def _train(chosen: argparse.Namespace) -> float:
    import torch

    from adapters.rllib.ppo import policy_by_role, ppo_config, shared_policy
    from adapters.rllib.sums import small_sums, success_frac

    torch.set_num_threads(1)
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)  # its warnings are about its own defaults
    env_config = small_sums(chosen.env_id, largest=chosen.largest)
    config = ppo_config(
        env_config, shared=chosen.shared, agent_wise=not chosen.stock, num_env_runners=chosen.env_runners
    )
    algorithm = config.debugging(seed=chosen.seed).build_algo()
    policy_of = shared_policy if chosen.shared else policy_by_role

    def module_of(agent_id: str) -> Any:
        return algorithm.get_module(policy_of(agent_id))

    began = time.monotonic()
    try:
        success = success_frac(module_of, env_config)
        console.print(f"iteration   0: success {success:.1%}")
        for iteration in range(1, chosen.iterations + 1):
            returns = algorithm.train()["env_runners"].get("agent_episode_returns_mean", {})
            if iteration % 5 == 0 or iteration == chosen.iterations:
                success = success_frac(module_of, env_config)
                means = ", ".join(f"{agent} {value:.2f}" for agent, value in sorted(returns.items()))
                seconds = time.monotonic() - began
                console.print(f"iteration {iteration:3}: success {success:.1%}; return {means}; {seconds:.0f} s")
        if chosen.save is not None:
            console.print(f"Checkpoint: {algorithm.save_to_path(chosen.save.resolve())}")
    finally:
        algorithm.stop()
    return success


if __name__ == "__main__":
    main()
