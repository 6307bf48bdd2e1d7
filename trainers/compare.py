"""Runs side by side: curves over seeds with bands, and a table of final figures with intervals."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainers.evaluate import bootstrap_interval
from trainers.report import render_page
from trainers.run_record import RunRecord, RunRecordError, read_run

__all__ = ["Arm", "compare_runs", "write_comparison"]


@dataclass(frozen=True)
class Arm:
    """The runs that differ in their seed only."""

    name: str
    """Recipe and estimator."""
    seeds: tuple[int, ...]
    """Seeds of the runs, in order."""
    curve: tuple[tuple[int, float, float, float], ...]
    """(iteration, mean held-out success, low, high) at each evaluation that all runs have."""
    final: tuple[float, float, float]
    """Mean held-out success at the last evaluation, and its interval over seeds."""
    gain: tuple[float, float, float]
    """Points gained since the first evaluation, and their interval over seeds."""
    grad_norms: dict[str, tuple[float, float]]
    """Agent id -> mean and largest gradient norm over all iterations and runs."""
    tokens: dict[str, float]
    """Agent id -> completion tokens per iteration, mean over runs."""
    seconds: float
    """Seconds of RL per run, mean."""


def compare_runs(run_dirs: Sequence[Path | str]) -> list[Arm]:
    """One arm for each recipe and estimator among the runs, in the order they are given.

    Intervals are 95 % bootstrap intervals over seeds; a single run has an interval without width.

    Raises:
        RunRecordError: If a directory holds no run, or a run has no evaluation yet.
    """
    arms: dict[str, list[RunRecord]] = {}
    for run_dir in run_dirs:
        run = read_run(run_dir)
        if not run.evaluations:
            raise RunRecordError(f"{run_dir} has no evaluation yet; train it further, or leave it out")
        arms.setdefault(f"{run.settings.get('name', '?')} · {run.estimator}", []).append(run)
    return [_arm(name, runs) for name, runs in arms.items()]


def write_comparison(run_dirs: Sequence[Path | str], out: Path) -> list[Arm]:
    """Write a self-contained page that compares runs; returns the arms it shows.

    Raises:
        RunRecordError: See `compare_runs`.
    """
    arms = compare_runs(run_dirs)
    page = render_page("compare.html", "compare.js", {"arms": [asdict(arm) for arm in arms]})
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_suffix(".writing")
    aside.write_text(page, encoding="utf-8")
    os.replace(aside, out)
    return arms


def _arm(name: str, runs: Sequence[RunRecord]) -> Arm:
    curves = [{line["iteration"]: float(line["avg_at_k"]) for line in run.evaluations} for run in runs]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    lasts = [run.evaluations[-1]["avg_at_k"] for run in runs]
    gains = [run.evaluations[-1]["avg_at_k"] - run.evaluations[0]["avg_at_k"] for run in runs]
    agent_ids = dict.fromkeys(agent_id for run in runs for line in run.iterations for agent_id in line["agents"])
    return Arm(
        name=name,
        seeds=tuple(int(run.settings.get("seed", 0)) for run in runs),
        curve=tuple((at, *_mean_with_interval([curve[at] for curve in curves])) for at in common),
        final=_mean_with_interval(lasts),
        gain=_mean_with_interval(gains),
        grad_norms={agent_id: _norms(runs, agent_id) for agent_id in agent_ids},
        tokens={agent_id: _mean(_figures(runs, agent_id, "completion_tokens")) for agent_id in agent_ids},
        seconds=_mean([sum(line["seconds"]["total"] for line in run.iterations) for run in runs]),
    )


def _mean_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    low, high = bootstrap_interval(values)
    return float(np.mean(values)), low, high


def _norms(runs: Sequence[RunRecord], agent_id: str) -> tuple[float, float]:
    return (
        _mean(_figures(runs, agent_id, "grad_norm")),
        max(_figures(runs, agent_id, "grad_norm_max"), default=float("nan")),
    )


def _figures(runs: Sequence[RunRecord], agent_id: str, name: str) -> list[float]:
    found: list[Any] = [line["agents"].get(agent_id, {}).get(name) for run in runs for line in run.iterations]
    return [float(value) for value in found if isinstance(value, float | int)]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
