"""A large router with a small searcher and answerer, against large models for all and small ones for all.

    python -m benchmarks.heterogeneous --out hetero [--seeds 3] [--iterations 20] [--jobs 2]

The recipe is `search-tiny` without its mediocre phase: clones of the experts, then a few iterations of RL. Large is a
model of 128 hidden units and 3 layers, small the recipe's own. Prices are those
of the paper (0.30 and 0.06 for a million tokens, read or written). Latency is measured greedily after training, one
episode at a time, so that no engine batches: what a single user waits for. Runs that are there are not run again.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LARGE = {"hidden_size": 128, "intermediate_size": 256, "num_layers": 3, "num_heads": 4, "vocab_size": 485}
PRICES = {"large": 0.30, "small": 0.06}
TEAMS = {
    "large for all": {"router": "large", "searcher": "large", "answerer": "large"},
    "large router": {"router": "large", "searcher": "small", "answerer": "small"},
    "small for all": {"router": "small", "searcher": "small", "answerer": "small"},
}
PAPER_SAVING = 0.418
"""Published saving of the second team against the first, with a 7B router and 3B others."""
_LATENCY_TASKS = 64
TRAIN = "import sys; from benchmarks.heterogeneous import train_here; train_here(sys.argv[1])"


def train_here(text: str) -> None:
    """Train one team in this process, then measure it; writes `measured.json` into the run."""
    job = json.loads(text)
    import torch

    from mas_envs.tasks import load_tasks
    from trainers import Trainer, load_settings

    torch.set_num_threads(1)
    sizes = TEAMS[job["team"]]
    overrides = [f"seed={job['seed']}", f"iterations={job['iterations']}", "threads=1", "evaluation.every=0"]
    overrides += ["warm_start.spoiled={}"]  # or teams of different size would start at different levels
    overrides += ["checkpoint.every=0", f"name={job['team'].replace(' ', '-')}"]
    large = json.dumps(LARGE)
    overrides += [f"policies.{policy}.tiny_model={large}" for policy, size in sizes.items() if size == "large"]
    overrides += [f"prices={json.dumps({policy: PRICES[size] for policy, size in sizes.items()})}"]
    run = Path(job["run"])
    shutil.rmtree(run, ignore_errors=True)
    Trainer(load_settings("search-tiny", overrides), run).train()
    trainer = Trainer.resume(run)
    quality = trainer.measure(n=4)
    tasks = load_tasks(trainer.settings.evaluation.tasks)
    waits = []
    for index in range(_LATENCY_TASKS):
        one = trainer.measure(tasks=tasks[index : index + 1], temperature=0.0)
        waits.append(sum(use.seconds for use in one.agents.values()))
    episodes = quality.n * quality.overall.num_tasks
    measured = {
        **job,
        "success": quality.overall.avg_at_k,
        "tokens": {
            agent: (use.prompt_tokens + use.completion_tokens) / episodes for agent, use in quality.agents.items()
        },
        "turns": {agent: use.turns_per_episode for agent, use in quality.agents.items()},
        "cost": 1e6 * sum(use.cost or 0.0 for use in quality.agents.values()) / episodes,
        "latency_ms": 1e3 * statistics.median(waits),
    }
    (run / "measured.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """The measurement of a team and seed, trained first if it is not there."""
    path = Path(job["run"]) / "measured.json"
    if not path.is_file():
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-c", TRAIN, json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{job['run']} failed: {done.stderr[-2000:]}")
    measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    print(f"{measured['team']}, seed {measured['seed']}: {measured['success']:.1%}", flush=True)
    return measured


def moved_share(saving: float, large: float, small: float) -> float:
    """Share of the tokens that must have moved to the small model for that saving, if their number stays the same.

    >>> round(moved_share(0.418, 0.30, 0.06), 3)
    0.522
    """
    return saving / (1.0 - small / large)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over seeds, and differences to large models for all, paired by seed."""
    heads = (
        "team",
        "success",
        "tokens an episode: router, searcher, answerer",
        "latency",
        "cost of a million episodes",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    base = {row["seed"]: row for row in rows if row["team"] == "large for all"}
    for team in TEAMS:
        mine = [row for row in rows if row["team"] == team]
        means = {key: statistics.mean(row[key] for row in mine) for key in ("success", "latency_ms", "cost")}
        tokens = ", ".join(
            f"{statistics.mean(row['tokens'][agent] for row in mine):.0f}" for agent in mine[0]["tokens"]
        )
        change = {
            key: statistics.mean(row[key] / base[row["seed"]][key] - 1.0 for row in mine)
            for key in ("latency_ms", "cost")
        }
        spread = f"{min(row['success'] for row in mine):.1%} to {max(row['success'] for row in mine):.1%}"
        lines.append(
            f"| {team} | {means['success']:.1%} ({spread}) | {tokens} | {means['latency_ms']:.0f} ms "
            f"({change['latency_ms']:+.1%}) | {means['cost']:.1f} ({change['cost']:+.1%}) |"
        )
    moved = moved_share(PAPER_SAVING, PRICES["large"], PRICES["small"])
    lines += [
        "",
        f"The paper's saving of {PAPER_SAVING:.1%} at these prices means that {moved:.0%} of the tokens moved to the "
        f"small model, if their number stayed the same; the router keeps {1 - moved:.0%}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("hetero"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    jobs = [
        {"team": team, "seed": seed, "iterations": arguments.iterations,
         "run": str(arguments.out / f"{team.replace(' ', '-')}-{seed}")}
        for seed in range(arguments.seeds)
        for team in TEAMS
    ]  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(run_job, jobs))
    (arguments.out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
