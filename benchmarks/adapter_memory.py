"""Memory of three agents with adapters on one base, beside one agent and beside three whole models.

Each case runs in a process of its own: policies are loaded, every agent takes one update on the same rows, and the
peak resident size is read. Command: `python benchmarks/adapter_memory.py [--hidden 512] [--layers 8] [--json FILE]`.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES = {"one agent, adapter": (1, True), "three agents, adapters": (3, True), "three agents, whole models": (3, False)}


def run_case(folder: Path, num_agents: int, with_adapters: bool) -> dict[str, float]:
    """Peak resident size in MB and bytes of distinct tensors in MB, after one update of every agent."""
    import numpy as np

    from trainers.batch import TrainingRow
    from trainers.config import AlgorithmSettings, LoraSettings, PolicySettings, SamplingSettings
    from trainers.learner import Learner
    from trainers.team import load_team

    lora = LoraSettings(rank=8) if with_adapters else None
    settings = PolicySettings(lora=lora, lr=1e-4, sampling=SamplingSettings(max_tokens=32))
    policies = {f"agent{index}": settings for index in range(num_agents)}
    team = load_team(policies, dict.fromkeys(policies, folder))
    learners = []
    for policy_id, policy in team.items():
        rows = [
            TrainingRow("solver_0", policy_id, tuple(range(10, 74)), tuple(range(20, 52)), (-1.0,) * 32)
            for _ in range(8)
        ]
        learner = Learner(
            policy.model,
            settings,
            AlgorithmSettings(),
            total_updates=1,
            token_budget=1024,
            temperature=1.0,
            max_completion_tokens=32,
            parameters=policy.trained_parameters(),
            activate=policy.activate,
        )
        learner.update(rows, np.linspace(-1.0, 1.0, len(rows)), seed=0)
        learners.append(learner)
    tensors = {value.data_ptr(): value for policy in team.values() for value in policy.model.parameters()}
    for learner in learners:
        tensors.update({v.data_ptr(): v for state in learner.optimizer.state.values() for v in state.values()})
    held = sum(value.numel() * value.element_size() for value in tensors.values())
    return {"peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "tensors_mb": held / 2**20}


def make_model(folder: Path, hidden: int, layers: int) -> None:
    """A model of the asked size with a tokenizer, as an ordinary folder."""
    from trainers.config import TinyModelSettings
    from trainers.tiny_model import make_tiny_model

    size = TinyModelSettings(
        hidden_size=hidden, intermediate_size=4 * hidden, num_layers=layers, num_heads=hidden // 64, max_context=256
    )
    make_tiny_model(["Solve 1+2"] * 3, folder, size, seed=0)


def main() -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        name, folder = arguments.case
        print(json.dumps(run_case(Path(folder), *CASES[name])))
        return
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), arguments.hidden, arguments.layers)
        for name in CASES:
            command = [sys.executable, __file__, "--case", name, folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results[name] = json.loads(done.stdout.splitlines()[-1])
    one = results["one agent, adapter"]
    print(f"{'case':<30}{'peak RSS MB':>13}{'ratio':>8}{'tensors MB':>13}{'ratio':>8}")
    for name, result in results.items():
        rss, held = result["peak_rss_mb"], result["tensors_mb"]
        print(f"{name:<30}{rss:>13.0f}{rss / one['peak_rss_mb']:>8.2f}{held:>13.0f}{held / one['tensors_mb']:>8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
