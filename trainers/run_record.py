"""Reads a run directory back: settings, metrics and transcripts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mas_envs.errors import MasEnvsError

__all__ = ["RunRecord", "RunRecordError", "read_run"]


class RunRecordError(MasEnvsError, ValueError):
    """A run directory that cannot be read."""


@dataclass(frozen=True)
class RunRecord:
    """What a run has written down so far."""

    run_dir: Path
    """Where it is."""
    settings: dict[str, Any]
    """Resolved settings."""
    iterations: list[dict[str, Any]]
    """Lines of kind `iteration`, in order."""
    evaluations: list[dict[str, Any]]
    """Lines of kind `evaluation`, in order."""
    warm_start: list[dict[str, Any]]
    """Lines of kind `warm_start`, in order."""
    transcripts: list[dict[str, Any]]
    """Rollouts, each with `phase`, `train` or `evaluation`."""

    @property
    def estimator(self) -> str:
        """Name of the advantage estimator."""
        return str(self.settings.get("algorithm", {}).get("estimator", "?"))


def read_run(run_dir: Path | str) -> RunRecord:
    """What the run in a directory has written down; a line that is still being written is left out.

    Raises:
        RunRecordError: If the directory holds no run, or a line in the middle of a file is damaged.
    """
    run_dir = Path(run_dir)
    metrics = run_dir / "metrics.jsonl"
    if not metrics.is_file():
        raise RunRecordError(
            f"{run_dir} holds no run (no metrics.jsonl); expected a directory that `mas-envs train` made"
        )
    settings_path = run_dir / "settings.yaml"
    settings = yaml.safe_load(settings_path.read_text(encoding="utf-8")) if settings_path.is_file() else {}
    lines = list(_json_lines(metrics))
    return RunRecord(
        run_dir=run_dir,
        settings=settings if isinstance(settings, dict) else {},
        iterations=[line for line in lines if line.get("kind") == "iteration"],
        evaluations=[line for line in lines if line.get("kind") == "evaluation"],
        warm_start=[line for line in lines if line.get("kind") == "warm_start"],
        transcripts=list(_transcripts(run_dir / "transcripts")),
    )


def _transcripts(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else []:
        phase = "evaluation" if path.name.startswith("evaluation") else "train"
        for line in _json_lines(path):
            yield {**line, "phase": phase}


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return  # the run is writing it, or was killed while it did
            raise RunRecordError(
                f"{path}, line {number} is damaged ({error}); remove that line and try again"
            ) from error
        if isinstance(record, Mapping):
            yield dict(record)
