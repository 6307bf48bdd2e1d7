"""The study behind docs/reproduction.md: estimators side by side, over seeds, on the CPU recipes.

    python -m benchmarks.reproduce --out study [--quick] [--seeds 5] [--only refine math] [--jobs 2]

Every setting and seed has one warm start, from which all its arms go on, so that arms differ in the estimator alone. A
run that is there already is not run again, one that was interrupted begins anew: start the command again after a stop.
The study ends with `results.json`, a table, plots, and for each setting a comparison page.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainers.compare import write_comparison
from trainers.evaluate import bootstrap_interval

TRAIN = "import sys; from benchmarks.reproduce import train_here; train_here(*sys.argv[1:])"
ALL = ("grpo", "drmas", "drmas_mean", "drmas_std", "grpo_rows")


@dataclass(frozen=True)
class Setting:
    """One experiment: a recipe, what is changed in it, and the arms."""

    name: str
    recipe: str
    question: str
    """What theory says, written down before the runs."""
    arms: tuple[str, ...] = ALL
    changes: tuple[str, ...] = ()
    iterations: int = 100
    quick_iterations: int = 40
    policies: tuple[str, ...] = ("solver", "verifier")


SHARED = (
    "policies={both: {model: tiny, lr: 1.0e-4, weight_decay: 0.0, sampling: {max_tokens: 12}}}",
    "agents={solver: both, verifier: both}",
)
SETTINGS = (
    Setting(
        "refine",
        "refine-tiny",
        "A rare agent acts in failing episodes only: the lemma predicts a large second moment under the team's "
        "baseline, and agent-wise normalisation removes it. Expected to differ.",
        iterations=150,
        quick_iterations=50,
        policies=("solver", "verifier", "refiner"),
    ),
    Setting(
        "refine-hot",
        "refine-tiny",
        "The same with lr 1e-3 and no clipping: larger gradients do harm. Expected to differ more.",
        arms=("grpo", "drmas"),
        changes=("policies.refiner.lr=1e-3", "policies.refiner.max_grad_norm=null"),
        iterations=100,
        quick_iterations=40,
        policies=("solver", "verifier", "refiner"),
    ),
    Setting(
        "math",
        "math-tiny",
        "Both agents act once or twice in every episode and share the reward: the same numbers up to penalties. "
        "Expected not to differ.",
    ),
    Setting(
        "math-shared",
        "math-tiny",
        "One model plays both. Expected not to differ.",
        arms=("grpo", "drmas"),
        changes=SHARED,
        policies=("both",),
    ),
    Setting(
        "math-role-scale",
        "math-tiny",
        "The verifier is paid for right verdicts, at ten times the solver's scale: one baseline for both is far from "
        "either. Expected to differ.",
        arms=("grpo", "grpo_rows", "drmas"),
        changes=("env.kwargs.reward=role", "reward_weights={verifier: {verdict: 10.0}}"),
    ),
    Setting(
        "solo",
        "math-tiny",
        "One agent: all schemes are the same.",
        arms=("grpo", "drmas"),
        changes=(
            "env.id=MathSolo-v0",
            "env.kwargs={tasks: {name: arithmetic, level: 2, split: train}, prompt_style: short}",
            "policies={solver: {model: tiny, lr: 1.0e-4, weight_decay: 0.0, sampling: {max_tokens: 10}}}",
            "agents={solver: solver}",
            "warm_start.behaviour={solver: {accuracy: 0.5, malformed: 0.02}}",
            "warm_start.spoiled={solver: {accuracy: 0.35, malformed: 0.1}}",
        ),
        policies=("solver",),
    ),
    Setting(
        "search",
        "search-tiny",
        "Router and searcher act in every round, the answerer once. Expected not to differ much; does the team go on "
        "searching?",
        arms=("grpo", "drmas"),
        iterations=150,
        quick_iterations=20,
        policies=("router", "searcher", "answerer"),
    ),
)
QUICK = ("refine", "math")


@dataclass(frozen=True)
class Study:
    """Where the runs go and how long they are."""

    out: Path
    seeds: int
    quick: bool

    def start_dir(self, setting: Setting, seed: int) -> Path:
        """The run that makes the starting models."""
        return self.out / "runs" / f"{setting.name}-{seed}-start"

    def run_dir(self, setting: Setting, arm: str, seed: int) -> Path:
        """The run of an arm."""
        return self.out / "runs" / f"{setting.name}-{seed}-{arm}"

    def overrides(self, setting: Setting, seed: int) -> list[str]:
        """What all runs of a setting and seed share."""
        tasks = 128 if self.quick else 256
        common = ["threads=1", f"seed={seed}", f"name={setting.name}", f"evaluation.num_tasks={tasks}"]
        return [*setting.changes, *common, "evaluation.every=25", "checkpoint.every=0"]


def main() -> None:
    """Run what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("study"))
    parser.add_argument("--quick", action="store_true", help="two settings, two seeds, short runs")
    parser.add_argument("--seeds", type=int, help="default 5, or 2 with --quick")
    parser.add_argument("--only", nargs="+", choices=[setting.name for setting in SETTINGS])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at the same time, one thread each")
    arguments = parser.parse_args()
    study = Study(arguments.out, arguments.seeds or (2 if arguments.quick else 5), arguments.quick)
    names = arguments.only or (QUICK if arguments.quick else [setting.name for setting in SETTINGS])
    settings = [setting for setting in SETTINGS if setting.name in names]
    began = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as jobs:
        for done in jobs.map(lambda job: run_job(study, *job), jobs_of(study, settings)):
            print(f"{time.monotonic() - began:6.0f} s  {done}", flush=True)
    rows = list(results(study, settings))
    (study.out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for setting in settings:
        runs = [study.run_dir(setting, arm, seed) for arm in setting.arms for seed in range(study.seeds)]
        write_comparison(runs, study.out / f"{setting.name}.html")
    table = markdown(settings, rows)
    (study.out / "results.md").write_text(table, encoding="utf-8")
    plot(settings, rows, study.out / "results.png")
    print(table)


def jobs_of(study: Study, settings: Sequence[Setting]) -> list[tuple[Setting, int]]:
    """One job for each setting and seed: its warm start, then its arms one after the other."""
    return [(setting, seed) for seed in range(study.seeds) for setting in settings]


def run_job(study: Study, setting: Setting, seed: int) -> str:
    """The warm start and all arms of one setting and seed; what is there stays."""
    start = study.start_dir(setting, seed)
    shared = study.overrides(setting, seed)
    if not is_done(start):
        train(start, [setting.recipe, *shared, "iterations=0", "evaluation.num_tasks=1"])
    models = json.loads((start / "models" / "starting.json").read_text(encoding="utf-8"))
    iterations = setting.quick_iterations if study.quick else setting.iterations
    for arm in setting.arms:
        run = study.run_dir(setting, arm, seed)
        if is_done(run):
            continue
        given = [f"policies.{policy}.model={models[policy]}" for policy in setting.policies]
        own = [f"estimator={arm}", f"iterations={iterations}", "warm_start=null", "on_zero_std=group"]
        train(run, [setting.recipe, *shared, *given, *own])
    return f"{setting.name}, seed {seed}: {', '.join(setting.arms)}"


def train(run: Path, arguments: Sequence[str]) -> None:
    """Train in a process of its own; what an interrupted run left is removed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    shutil.rmtree(run, ignore_errors=True)
    log = run.with_name(f"{run.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-c", TRAIN, str(run), *arguments]
        code = subprocess.call(command, stdout=file, stderr=file, env=environment)
    if code:
        raise RuntimeError(f"{run} failed with exit code {code}; see {log}")


def train_here(run: str, recipe: str, *overrides: str) -> None:
    """Train in this process."""
    from trainers import Trainer, load_settings

    Trainer(load_settings(recipe, overrides), run).train()


def is_done(run: Path) -> bool:
    """Whether a run has come to its end: the report is written last."""
    return (run / "report.html").is_file()


def results(study: Study, settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """One row for each run."""
    for setting in settings:
        for arm in setting.arms:
            for seed in range(study.seeds):
                yield {"setting": setting.name, "arm": arm, "seed": seed, **figures(study.run_dir(setting, arm, seed))}


def figures(run: Path) -> dict[str, Any]:
    """What is compared: success, and for each trained agent its gradients, advantages, calls and tokens."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    iterations = [line for line in lines if line["kind"] == "iteration"]
    return {
        "before": evaluations[0]["avg_at_k"],
        "after": evaluations[-1]["avg_at_k"],
        "curve": [(line["iteration"], line["avg_at_k"]) for line in evaluations],
        "seconds": sum(line["seconds"]["total"] for line in iterations),
        "agents": {
            agent_id: agent_figures([line["agents"][agent_id] for line in iterations], evaluations[-1], agent_id)
            for agent_id in iterations[0]["agents"]
        },
    }


def agent_figures(lines: Sequence[dict[str, Any]], evaluation: dict[str, Any], agent_id: str) -> dict[str, Any]:
    """Means over a run; the second moment that the lemma predicts, and the one that was measured."""

    def mean(name: str) -> float | None:
        values = [line[name] for line in lines if isinstance(line.get(name), float | int)]
        return float(np.mean(values)) if values else None

    norms = [line["grad_norm_max"] for line in lines if isinstance(line.get("grad_norm_max"), float)]
    squares = [line["advantage_rms"] ** 2 for line in lines if isinstance(line.get("advantage_rms"), float)]
    late = [line["reward_mean"] for line in lines[-20:] if isinstance(line.get("reward_mean"), float)]
    return {
        "late_reward": float(np.mean(late)) if late else None,
        "grad_norm_mean": mean("grad_norm"),
        "grad_norm_max": max(norms, default=None),
        "updates_over_5": sum(norm > 5.0 for norm in norms),
        "advantage_mean": mean("advantage_mean"),
        "second_moment": float(np.mean(squares)) if squares else None,
        "predicted_inflation": mean("inflation"),
        "predicted_second_moment": mean("predicted_second_moment"),
        "zero_advantage_frac": mean("zero_advantage_frac"),
        "guarded_frac": mean("guarded_frac"),
        "turns_per_episode": mean("turns_per_episode"),
        "final_turns_per_episode": evaluation["agents"][agent_id]["turns_per_episode"],
        "valid_frac": evaluation["agents"][agent_id]["valid_frac"],
        "completion_tokens": evaluation["agents"][agent_id]["completion_tokens"],
    }


def markdown(settings: Sequence[Setting], rows: Sequence[dict[str, Any]]) -> str:
    """One table a setting."""
    parts = []
    for setting in settings:
        parts.append(f"### {setting.name}\n\n{setting.question}\n")
        parts.append(
            "| arm | after | over grpo | agent | late reward | gradient mean, max | mean A | A^2, predicted | A = 0 |"
        )
        parts.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for arm in setting.arms:
            parts += arm_rows(arm, [row for row in rows if row["setting"] == setting.name], setting)
        parts.append("")
    return "\n".join(parts)


def arm_rows(arm: str, rows: Sequence[dict[str, Any]], setting: Setting) -> Iterator[str]:
    """The lines of one arm: success in the first, one agent a line."""
    mine = [row for row in rows if row["arm"] == arm]
    base = {row["seed"]: row["after"] for row in rows if row["arm"] == "grpo"}
    after = with_interval([row["after"] for row in mine])
    gain = "" if arm == "grpo" else with_interval([row["after"] - base[row["seed"]] for row in mine], signed=True)
    trained = [name for name, agent in mine[0]["agents"].items() if agent["grad_norm_mean"] is not None]
    for number, agent_id in enumerate(trained):
        agents = [row["agents"][agent_id] for row in mine]

        def mean(name: str, agents: Sequence[dict[str, Any]] = agents) -> float:
            return float(np.mean([agent[name] for agent in agents if agent[name] is not None] or [float("nan")]))

        largest = max(agent["grad_norm_max"] for agent in agents)
        lead = f"{arm} | {after} | {gain}" if number == 0 else " | | "
        yield (
            f"| {lead} | {agent_id} | {mean('late_reward'):.2f} | "
            f"{mean('grad_norm_mean'):.2f}, {largest:.1f} | {mean('advantage_mean'):+.2f} | "
            f"{mean('second_moment'):.2f}, {mean('predicted_second_moment'):.2f} | {mean('zero_advantage_frac'):.0%} |"
        )


def with_interval(values: Sequence[float], *, signed: bool = False) -> str:
    """Mean with its bootstrap interval over seeds, in percent."""
    low, high = bootstrap_interval(values)
    sign = "+" if signed else ""
    return f"{np.mean(values):{sign}.1%} ({low:{sign}.1%} to {high:{sign}.1%})"


def plot(settings: Sequence[Setting], rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Held-out success over iterations, mean over seeds, one panel a setting."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(settings), figsize=(3.4 * len(settings), 3.0), squeeze=False, sharey=True)
    for axis, setting in zip(axes[0], settings, strict=True):
        for arm in setting.arms:
            curves = [row["curve"] for row in rows if row["setting"] == setting.name and row["arm"] == arm]
            at = [iteration for iteration, _ in curves[0]]
            values = np.array([[success for _, success in curve] for curve in curves])
            axis.plot(at, values.mean(axis=0), label=arm)
            axis.fill_between(at, values.min(axis=0), values.max(axis=0), alpha=0.12)
        axis.set_title(setting.name, fontsize=10)
        axis.set_xlabel("iteration")
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("held-out success")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
