"""What a run tells those who follow it: callbacks, the result, and why it ended early."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas_envs.errors import MasEnvsError
from trainers.evaluate import Evaluation

if TYPE_CHECKING:
    from trainers.trainer import Trainer

__all__ = ["Callback", "RunResult", "TrainingDiverged", "TrainingInterrupted"]


class TrainingInterrupted(MasEnvsError, KeyboardInterrupt):
    """Training was stopped from outside; the message says how to go on."""


class TrainingDiverged(MasEnvsError, ArithmeticError):
    """Updates were not finite several times in a row; the message says where the batches are and what to try."""


class Callback:
    """Something to be told about a run; override what you need."""

    def on_iteration(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        """An iteration has ended; `record` is its line of `metrics.jsonl`."""

    def on_evaluation(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        """An evaluation has ended."""


@dataclass(frozen=True)
class RunResult:
    """What a finished run leaves."""

    run_dir: Path
    """The run directory."""
    before: Evaluation | None
    """Held-out success before RL; None when the run was resumed."""
    after: Evaluation
    """Held-out success at the end."""
    report: Path
    """The report page."""
