"""Who is told how a run is going: nobody, or a person at a terminal."""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["ConsoleReporter", "Reporter", "SilentReporter"]

_NOTICED_S = 2.0
_LINE_EVERY = 10
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
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._stages: list[tuple[TaskID, str, float]] = []
        self._successes: list[float] = []

    def start(self, stage: str, total: int | None, *, done: int = 0) -> None:
        """Show a bar."""
        if not self._stages:
            self._progress.start()
        task_id = self._progress.add_task(stage, total=total, completed=done, note="")
        self._stages.append((task_id, stage, time.monotonic()))

    def advance(self, note: str = "") -> None:
        """Move the innermost bar."""
        task_id = self._stages[-1][0]
        if note:
            self._progress.update(task_id, note=note)
        self._progress.advance(task_id)

    def finish(self) -> None:
        """Take the innermost bar away, leaving a line if it took long enough to be noticed."""
        if not self._stages:
            return
        task_id, stage, began = self._stages.pop()
        elapsed = time.monotonic() - began
        self._progress.remove_task(task_id)
        if stage != "Evaluation" and elapsed > _NOTICED_S:
            self._line(f"{stage}: {elapsed:.0f} s")
        if not self._stages:
            self._progress.stop()

    def iteration(self, record: Mapping[str, Any]) -> None:
        """Move the bar and show success and gradient norms."""
        self._successes.append(record["success"])
        norms = "  ".join(
            f"{agent_id} |g| {agent['grad_norm']:.2f}"
            for agent_id, agent in record["agents"].items()
            if "grad_norm" in agent
        )
        note = f"success {record['success']:4.0%} {_sparkline(self._successes)}  {norms}"
        self.advance(note)
        if not self._console.is_terminal and record["iteration"] % _LINE_EVERY == 0:
            self._line(f"iteration {record['iteration']:>4}: {note}")
        for alarm in record["alarms"]:
            self._line(f"! {alarm['agent_id']}: {alarm['message']}", style="yellow")

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """One line with the interval."""
        low, high = record["interval"]
        self._line(
            f"iteration {record['iteration']:>4}: {record['tasks']}, success {record['avg_at_k']:.1%} "
            f"(95 % interval {low:.1%} to {high:.1%}; {record['num_tasks']} tasks x {record['n']})",
            style="bold",
        )
        for failure in record["failures"]:
            self._line(f"! {failure['count']} episodes failed: {failure['error']}", style="yellow")

    def message(self, text: str) -> None:
        """Print it above the bars."""
        self._line(text)

    def _line(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _sparkline(values: list[float], width: int = 20) -> str:
    """The course of values in [0, 1], compressed to at most `width` blocks."""
    step = max(1, -(-len(values) // width))
    means = [sum(values[i : i + step]) / len(values[i : i + step]) for i in range(0, len(values), step)]
    return "".join(_BLOCKS[min(7, int(8 * mean))] if mean == mean else " " for mean in means)
