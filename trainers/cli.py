"""The training commands of `mas-envs`: train, eval, report."""

import itertools
import json
import os
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mas_envs.errors import MissingExtraError

__all__ = ["compare", "evaluate", "report", "train"]

console = Console()

Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Settings as key=value, such as estimator=grpo or seed=3; see the recipe for names."),
]


def train(
    recipe: Annotated[str | None, typer.Argument(help="Name of a recipe, or a .yaml file.")] = None,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where the run goes; the default is runs/RECIPE-N.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run directory to go on with.")] = None,
    open_report: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser when there is a screen.")
    ] = True,
) -> None:
    """Train a team; the run directory holds metrics, transcripts, checkpoints and a report.

    Example: mas-envs train math-tiny estimator=grpo
    """
    _quiet_threads()
    _need_torch()
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
        trainer = Trainer(load_settings(recipe, overrides or []), run_dir or _new_run_dir(recipe), reporter=reporter)
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


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    tasks: Annotated[
        str | None, typer.Option(help="Task set or file; the default is the run's held-out tasks.")
    ] = None,
    n: Annotated[int, typer.Option(min=1, help="Rollouts per task.")] = 4,
    num_tasks: Annotated[int | None, typer.Option(min=1, help="Tasks to use, from the start of the set.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy; the default is the run's.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> None:
    """Measure a run's newest checkpoint: avg@k and unbiased pass@k by source, and what each agent used.

    Example: mas-envs eval runs/math-tiny-1 --n 16
    """
    _quiet_threads()
    _need_torch()
    from trainers.progress import ConsoleReporter
    from trainers.records import evaluation_record
    from trainers.trainer import Trainer

    trainer = Trainer.resume(run, reporter=ConsoleReporter(console))
    result = trainer.measure(tasks=tasks, n=n, num_tasks=num_tasks, temperature=temperature)
    scores = Table("source", "tasks", f"avg@{n}", "95 % interval", *(f"pass@{k}" for k in result.overall.pass_at_k))
    for source, score in {**result.by_source, "all": result.overall}.items():
        low, high = score.interval
        chances = [f"{value:.1%}" for value in score.pass_at_k.values()]
        scores.add_row(source, str(score.num_tasks), f"{score.avg_at_k:.1%}", f"{low:.1%} to {high:.1%}", *chances)
    console.print(scores)
    agents = Table("agent", "turns", "turns/episode", "valid", "prompt tokens", "completion tokens", "seconds")
    for agent_id, use in result.agents.items():
        agents.add_row(
            agent_id,
            str(use.turns),
            f"{use.turns_per_episode:.2f}",
            f"{use.valid_frac:.1%}",
            str(use.prompt_tokens),
            str(use.completion_tokens),
            f"{use.seconds:.1f}",
        )
    console.print(agents)
    if output is not None:
        output.write_text(json.dumps(evaluation_record(result, trainer.iteration), indent=1), encoding="utf-8")


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


def _new_run_dir(recipe: str) -> Path:
    """`runs/NAME-N` with the first N that is free."""
    name = Path(recipe).stem
    return next(path for number in itertools.count(1) if not (path := Path("runs") / f"{name}-{number}").exists())


def _quiet_threads() -> None:
    """Before torch is imported: waiting OpenMP threads sleep, or a busy neighbour makes a step many times slower."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _need_torch() -> None:
    try:
        import peft  # noqa: F401
        import safetensors  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"training needs {error.name}; pip install 'mas-envs[train]'") from error


def _has_screen() -> bool:
    return (
        os.name == "nt" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ or os.uname().sysname == "Darwin"
    )
