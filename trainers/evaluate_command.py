"""`mas-envs eval`: runs and models, side by side on the same tasks."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainers.commands_setup import need_torch, quiet_threads

__all__ = ["evaluate"]

console = Console()


def evaluate(  # noqa: PLR0913  # one argument an option
    targets: Annotated[
        list[str],
        typer.Argument(
            help="Run directories, model folders, hub names, endpoints as URL#MODEL, or recipes of frozen teams.",
            metavar="RUN|MODEL|URL#MODEL|RECIPE...",
        ),
    ],
    tasks: Annotated[
        str | None, typer.Option(help="Task set or file; the default is each run's held-out tasks.")
    ] = None,
    n: Annotated[int, typer.Option(min=1, help="Rollouts per task.")] = 4,
    num_tasks: Annotated[int | None, typer.Option(min=1, help="Tasks to use, from the start of the set.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy; the default is the run's.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Share of probability to sample from, in (0, 1]; the default is the run's.")
    ] = None,
    env: Annotated[str, typer.Option(help="Environment that a plain model plays, as every agent.")] = "MathLoop-v0",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens a plain model may write in a turn.")] = 1024,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the key for endpoints given as URL#MODEL.")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="YAML: agent, role or policy -> price of a million tokens, or {prompt:, completion:}."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Measure teams: avg@k and unbiased pass@k by source, and what each agent used. A run plays its newest checkpoint.

    Example: mas-envs eval runs/math-tiny-1 runs/math-tiny-2 --n 16 --prices prices.yaml
    """
    quiet_threads()
    need_torch()
    from trainers.config import SettingsError
    from trainers.measured_teams import PlainModel, is_endpoint, trainer_of
    from trainers.progress import ConsoleReporter
    from trainers.records import evaluation_record

    plain = PlainModel(env=env, max_tokens=max_tokens, api_key_env=api_key_env)
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise SettingsError(f"--top-p {top_p}: expected a number in (0, 1]; 1 keeps all tokens")
    reporter = ConsoleReporter(console)
    table = _read_prices(prices)
    results: dict[str, Any] = {}
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        trainers = {
            target: trainer_of(target, Path(scratch) / str(number), plain, prices=table, reporter=reporter)
            for number, target in enumerate(dict.fromkeys(targets))
        }
        names = set().union(*(trainer.team_names for trainer in trainers.values()))
        if unknown := sorted(set(table or {}) - names):
            raise SettingsError(
                f"--prices {prices}: {unknown[0]!r} is no agent, role or policy of any team here; expected some of "
                f"{', '.join(sorted(names))}"
            )
        for target, trainer in trainers.items():
            try:
                results[target] = trainer.measure(
                    tasks=tasks, n=n, num_tasks=num_tasks, temperature=temperature, top_p=top_p
                )
            except SettingsError as error:
                if Path(target).exists() or is_endpoint(target):
                    raise
                raise SettingsError(f"{target} holds no run, and no model of that name can be had: {error}") from error
            records.append({"target": target, **evaluation_record(results[target], trainer.iteration)})
    _show_scores(results, n)
    _show_agents(results)
    _show_failures(results)
    if output is not None:
        written = records[0] if len(records) == 1 else records
        output.write_text(json.dumps(written, indent=1), encoding="utf-8")


def _read_prices(path: Path | None) -> Mapping[str, Any] | None:
    from trainers.config import SettingsError

    if path is None:
        return None
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(
            f"--prices {path}: cannot be read ({error}); expected YAML such as `solver: 0.5`"
        ) from error
    if not isinstance(table, dict):
        raise SettingsError(f"--prices {path}: holds {type(table).__name__}; expected names with prices")
    return table


def _show_scores(results: Mapping[str, Any], n: int) -> None:
    ks = list(dict.fromkeys(k for result in results.values() for k in result.overall.pass_at_k))
    named = ["team"] if len(results) > 1 else []
    scores = Table(*named, "source", "tasks", f"avg@{n}", "95 % interval", *(f"pass@{k}" for k in ks))
    for target, result in results.items():
        for source, score in {**result.by_source, "all": result.overall}.items():
            low, high = score.interval
            chances = [f"{value:.1%}" for value in score.pass_at_k.values()]
            shown = [escape(target)] if named else []
            interval = f"{low:.1%} to {high:.1%}"
            scores.add_row(*shown, source, str(score.num_tasks), f"{score.avg_at_k:.1%}", interval, *chances)
    console.print(scores)


def _show_agents(results: Mapping[str, Any]) -> None:
    named = ["team"] if len(results) > 1 else []
    priced = any(use.cost is not None for result in results.values() for use in result.agents.values())
    columns: Sequence[str] = (
        "agent",
        "turns",
        "turns/episode",
        "valid",
        "prompt tokens",
        "completion tokens",
        "seconds",
    )
    agents = Table(*named, *columns, *(["cost"] if priced else []))
    for target, result in results.items():
        for agent_id, use in result.agents.items():
            agents.add_row(
                *([escape(target)] if named else []),
                agent_id,
                str(use.turns),
                f"{use.turns_per_episode:.2f}",
                f"{use.valid_frac:.1%}",
                str(use.prompt_tokens),
                str(use.completion_tokens),
                f"{use.seconds:.1f}",
                *([("" if use.cost is None else f"{use.cost:.6g}")] if priced else []),
            )
    console.print(agents)


def _show_failures(results: Mapping[str, Any]) -> None:
    """What ended episodes from outside: they count as failures, which may be no fault of the team."""
    for target, result in results.items():
        episodes = result.overall.num_tasks * result.n
        for error, num_ended in result.failures.items():
            text = f"{target}: {num_ended} of {episodes} episodes failed: {error}"
            console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)
