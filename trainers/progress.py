"""Who is told how a run is going: nobody, or a person at a terminal."""

from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["ConsoleReporter", "Reporter", "SilentReporter"]

_BLOCKS = "▁▂▃▄▅▆▇█"


class Reporter(Protocol):
    """What the trainer tells about; stages may be nested."""

    def start(self, stage: str, total: int | None, *, done: int = 0) -> None:
        """A stage begins; `total` None is an open end."""

    def advance(self, note: str = "") -> None:
        """One unit of the innermost stage is done."""

    def finish(self) -> None:
        """The innermost stage has ended."""

    def iteration(self, record: Mapping[str, Any]) -> None:
        """An iteration has ended."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """An evaluation has ended."""

    def message(self, text: str) -> None:
        """Something a person should read."""


class SilentReporter:
    """Tells nobody."""

    def start(self, stage: str, total: int | None, *, done: int = 0) -> None:
        """Nothing."""

    def advance(self, note: str = "") -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""

    def iteration(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """Nothing."""


class ConsoleReporter:
    """Progress bars on a terminal, with success as it climbs; plain lines where the output is no terminal.

    Args:
        console: Where to write.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._stages: list[tuple[TaskID, str]] = []
        self._successes: list[float] = []

    def start(self, stage: str, total: int | None, *, done: int = 0) -> None:
        """Show a bar."""
        if not self._stages:
            self._progress.start()
        self._stages.append((self._progress.add_task(stage, total=total, completed=done, note=""), stage))

    def advance(self, note: str = "") -> None:
        """Move the innermost bar."""
        self._progress.update(self._stages[-1][0], advance=1, **({"note": note} if note else {}))

    def finish(self) -> None:
        """Take the innermost bar away, leaving a line where it counts."""
        if not self._stages:
            return
        task_id, stage = self._stages.pop()
        elapsed = next(task.elapsed for task in self._progress.tasks if task.id == task_id) or 0.0
        self._progress.remove_task(task_id)
        if stage != "Evaluation":
            self._console.print(f"{stage}: done in {elapsed:.0f} s", highlight=False)
        if not self._stages:
            self._progress.stop()

    def iteration(self, record: Mapping[str, Any]) -> None:
        """Move the bar and show success and gradient norms."""
        success = record["success"]
        self._successes.append(success)
        norms = "  ".join(
            f"{agent_id} |g| {agent['grad_norm']:.2f}" for agent_id, agent in record["agents"].items() if "grad_norm" in agent
        )
        self.advance(f"success {success:4.0%} {_sparkline(self._successes)}  {norms}")
        for alarm in record["alarms"]:
            self._console.print(f"[yellow]! {alarm['agent_id']}: {alarm['message']}[/yellow]")

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """One line with the interval."""
        low, high = record["interval"]
        self._console.print(
            f"iteration {record['iteration']:>4}: {record['tasks']} avg@{record['n']} [bold]{record['avg_at_k']:.1%}[/bold] "
            f"(95 % interval {low:.1%} to {high:.1%}, {record['num_tasks']} tasks)",
            highlight=False,
        )

    def message(self, text: str) -> None:
        """Print it above the bars."""
        self._console.print(text, highlight=False, markup=False)


def _sparkline(values: list[float], width: int = 20) -> str:
    """The course of values in [0, 1], compressed to at most `width` blocks."""
    step = max(1, -(-len(values) // width))
    means = [sum(values[i : i + step]) / len(values[i : i + step]) for i in range(0, len(values), step)]
    return "".join(_BLOCKS[min(7, int(8 * mean))] if mean == mean else " " for mean in means)
