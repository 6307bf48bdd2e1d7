"""The training commands of `mas-envs`: train, report, compare; `eval` and `export` have files of their own."""

import itertools
import os
import re
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainers.commands_setup import need_torch, quiet_threads

__all__ = ["compare", "report", "train"]

console = Console()

Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Settings as key=value, such as estimator=grpo or seed=3; see the recipe for names."),
]


def train(
    recipe: Annotated[str | None, typer.Argument(help="Name of a recipe, or a .yaml file.")] = None,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where the run goes; the default is runs/NAME-N.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run directory to go on with.")] = None,
    open_report: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser when there is a screen.")
    ] = True,
) -> None:
    """Train a team; the run directory holds metrics, transcripts, checkpoints and a report.

    Example: mas-envs train math-tiny estimator=grpo
    """
    quiet_threads()
    need_torch()
    from trainers.config import SettingsError, load_settings, recipe_names
    from trainers.progress import ConsoleReporter
    from trainers.trainer import Trainer, TrainingInterrupted

    reporter = ConsoleReporter(console)
    if resume is not None:
        if recipe is not None:
            raise SettingsError(f"--resume goes on with the settings of {resume}; leave {recipe!r} and overrides out")
        trainer = Trainer.resume(resume, reporter=reporter)
    elif recipe is None:
        raise SettingsError(f"no recipe given; expected one of {', '.join(recipe_names())}, or a .yaml file")
    else:
        settings = load_settings(recipe, overrides or [])
        name = settings.name if "name" in settings.model_fields_set else Path(recipe).stem
        trainer = Trainer(settings, run_dir or _new_run_dir(name), reporter=reporter)
    console.print(f"Training {trainer.settings.name} in {trainer.run_dir}", highlight=False)
    try:
        result = trainer.train()
    except TrainingInterrupted as error:
        console.print(str(error), highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    before = f"{result.before.overall.avg_at_k:.1%} -> " if result.before else ""
    console.print(f"Held-out success: {before}[bold]{result.after.overall.avg_at_k:.1%}[/bold]", highlight=False)
    console.print(f"Report: {result.report}", highlight=False, soft_wrap=True)
    if open_report and console.is_terminal and _has_screen():
        webbrowser.open(result.report.resolve().as_uri())


def report(run: Annotated[Path, typer.Argument(help="Run directory.")]) -> None:
    """Write a run's report page again, also while the run is going.

    Example: mas-envs report runs/math-tiny-1
    """
    from trainers.report import write_report

    console.print(f"Report: {write_report(run)}", highlight=False, soft_wrap=True)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories; runs that differ in the seed only form one arm.")
    ],
    output: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path("comparison.html"),
) -> None:
    """Compare runs: curves over seeds with bands, and final figures with intervals.

    Example: mas-envs compare runs/math-tiny-1 runs/math-tiny-2 --out comparison.html
    """
    from trainers.compare import write_comparison

    table = Table("runs", "seeds", "final success", "95 % interval", "gain", "95 % interval", "RL seconds")
    for arm in write_comparison(runs, output):
        (final, *final_range), (gain, *gain_range) = arm.final, arm.gain
        table.add_row(
            arm.name,
            ", ".join(map(str, arm.seeds)),
            f"{final:.1%}",
            f"{final_range[0]:.1%} to {final_range[1]:.1%}",
            f"{gain:+.1%}",
            f"{gain_range[0]:+.1%} to {gain_range[1]:+.1%}",
            f"{arm.seconds:.0f}",
        )
    console.print(table)
    console.print(f"Page: {output}", highlight=False, soft_wrap=True)


def _new_run_dir(name: str) -> Path:
    """`runs/NAME-N` with the first N that is free."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    return next(path for number in itertools.count(1) if not (path := Path("runs") / f"{plain}-{number}").exists())


def _has_screen() -> bool:
    return (
        os.name == "nt" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ or os.uname().sysname == "Darwin"
    )
