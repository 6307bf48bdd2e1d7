"""The `mas-envs` command: environments here; training commands come from installed packages by entry point."""

import functools
import importlib.metadata
import json
import sys
import textwrap
import warnings
from collections.abc import Collection
from typing import Annotated, Any

import typer
from gymnasium.error import Error as GymnasiumError
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from mas_envs.agent_keys import roles_of
from mas_envs.conversation import Turn
from mas_envs.errors import MasEnvsError
from mas_envs.policies import PolicyError
from mas_envs.retrieval.commands import index_app, serve
from mas_envs.scaffold import new
from mas_envs.spaces import Message
from mas_envs.tasks import Task

__all__ = ["build_app", "main"]

COMMAND_GROUP = "mas_envs.commands"
"""Entry-point group of further commands: name = command, value = `module:function` for typer."""

_USAGE_ERROR = 2

console = Console()
errors = Console(stderr=True)

Setting = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="Argument of the environment: name=value, the value in JSON.")
]


def list_environments() -> None:
    """List all environments, those of installed plug-ins included.

    Example: mas-envs list
    """
    import mas_envs

    mas_envs.registry.load_plugins()
    table = Table("id", "agents", "from", title="Environments")
    for env_id in sorted(mas_envs.registry):
        spec = mas_envs.registry[env_id]
        try:
            agents = ", ".join(mas_envs.make(env_id).possible_agents)
        except Exception as error:  # noqa: BLE001  # a missing extra, a plug-in's fault: the others are listed all the same
            agents = escape(f"({error})")
        table.add_row(env_id, agents, spec.origin)
    console.print(table)


def info(env_id: Annotated[str, typer.Argument(help="Such as MathLoop-v0.")], settings: Setting = None) -> None:
    """Show what an environment is: agents, tasks, arguments and a first observation.

    Example: mas-envs info MathLoop-v0
    """
    import inspect

    import mas_envs

    env = mas_envs.make(env_id, **_arguments(settings))
    base = env.unwrapped
    env.reset(seed=0)
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("id", base.spec.id)
    roles = roles_of(env)
    table.add_row("agents", ", ".join(f"{agent} ({roles[agent]})" for agent in env.possible_agents))
    if hasattr(base, "tasks"):
        table.add_row("tasks", escape(str(base.tasks)))
    if isinstance(task := getattr(base, "task", None), Task):
        answer = f"  ->  {_answer_text(task)}" if any(task.answer) else ""  # tasks that are judged have none
        table.add_row("first task", escape(f"{task.question}{answer}"))
    table.add_row("arguments", escape(_signature(type(base))))
    table.add_row("action space", str(env.action_space(env.agent_selection)))
    table.add_row("info keys", ", ".join(env.infos[env.agent_selection]))
    console.print(Panel(table, title=base.spec.id))
    console.print(_reflowed(inspect.getdoc(type(base)) or "", console.width), markup=False, highlight=False)
    observation = env.observe(env.agent_selection)
    if not isinstance(observation, dict) or "messages" not in observation:
        console.print(Panel(escape(str(observation)), title=f"what {env.agent_selection} is shown first"))
        return
    for message in observation["messages"]:
        title = f"what {env.agent_selection} is shown first ({message['role']})"
        console.print(Panel(escape(message["content"]), title=title))


def play(
    env_id: Annotated[str, typer.Argument(help="Such as MathLoop-v0.")],
    seat: Annotated[str | None, typer.Option("--as", help="Agent or role to play; the default is every agent.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the episode.")] = None,
    settings: Setting = None,
) -> None:
    r"""Play an episode in the terminal; scripted experts take the other seats.

    Example: mas-envs play MathLoop-v0 --as solver --seed 1

    From a script an empty line ends a turn: printf '\\boxed{7}\n\n' | mas-envs play MathLoop-v0 --as solver
    """
    import mas_envs

    env = mas_envs.make(env_id, **_arguments(settings))
    base = env.unwrapped
    mine = [agent for agent in env.possible_agents if seat in (None, agent, base.role_of(agent))]
    if not mine:
        raise typer.BadParameter(
            f"{seat!r} is neither an agent nor a role of {env_id}; agents are {', '.join(env.possible_agents)}",
            param_hint="--as",
        )
    people = {agent: functools.partial(_answer_in_terminal, agent) for agent in mine}
    try:
        episode = mas_envs.play(env, people, seed=seed, on_turn=functools.partial(_show_turn, mine))
    except PolicyError as error:
        if not isinstance(error.__cause__, EOFError):
            raise
        errors.print(str(error.__cause__), highlight=False)
        raise typer.Exit(1) from None
    verdict = {True: "Solved", False: "Not solved", None: "Ended without a grade"}[episode.success]
    table = Table("agent", "reward", "terms", title=f"{verdict}. The answer is {escape(_answer_text(base.task))}")
    for agent, reward in episode.returns.items():
        terms = ", ".join(f"{name} {amount:+g}" for name, amount in episode.reward_terms[agent].items())
        table.add_row(agent, f"{reward:g}", terms)
    console.print(table)


def check(
    env_id: Annotated[str, typer.Argument(help="Such as MathLoop-v0, or module:theirs/Debate-v0.")],
    seed: Annotated[int, typer.Option(help="Seed of all episodes.")] = 0,
    skip: Annotated[list[str] | None, typer.Option(help="Name of a check to leave out; may be given again.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also list the checks that passed.")] = False,
) -> None:
    """Check that an environment keeps the contract; exit code 1 when it does not.

    Example: mas-envs check MathLoop-v0
    """
    from mas_envs.checker import check_env, render_report

    with console.status(f"Checking {env_id}"):
        report = check_env(env_id, seed=seed, skip=skip or (), raise_on_findings=False)
    render_report(report, console, verbose=verbose)
    if not report.passed:
        raise typer.Exit(1)


def _answer_in_terminal(agent: str, messages: tuple[Message, ...]) -> str:
    """One completion from the terminal: lines up to an empty one or the end of input."""
    for message in messages:
        console.print(Panel(escape(message["content"]), title=f"{agent} is shown ({message['role']})"))
    console.print(f"[bold]{agent}[/bold], write your turn; an empty line ends it.", highlight=False)
    lines: list[str] = []
    while True:
        line = sys.stdin.readline()
        if not line.strip():
            if not line and not lines:
                raise EOFError(f"The input ended before the episode did: {agent} has said nothing.")
            return "\n".join(lines)
        lines.append(line.rstrip("\n"))


def _show_turn(mine: Collection[str], turn: Turn) -> None:
    """What a scripted mate said, and whether the turn was valid."""
    if turn.agent_id not in mine:
        console.print(Panel(escape(turn.text), title=f"{turn.agent_id} (scripted)", style="dim"))
    if not turn.valid:
        console.print(f"[yellow]invalid:[/yellow] {escape(turn.reason or '')}", highlight=False)


def _signature(kind: type) -> str:
    """The arguments of a constructor and their defaults, as one would write them."""
    import inspect

    parameters = list(inspect.signature(kind).parameters.values())
    named = [one for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return ", ".join(one.name if one.default is one.empty else f"{one.name}={one.default!r:.60}" for one in named)


def _answer_text(task: Any) -> str:
    return task.answer if isinstance(task.answer, str) else " or ".join(task.answer)


def _reflowed(doc: str, width: int) -> str:
    """A docstring with its paragraphs and its list of arguments wrapped to `width` anew."""
    paragraphs: list[str] = []
    starts_anew = True
    for line in doc.splitlines():
        indent = len(line) - len(line.lstrip())
        if not starts_anew and line.strip() and (indent == 0 or indent > 4):
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
        starts_anew = not line.strip() or line.rstrip() in ("Args:", "Raises:", "Returns:")
    wrapped = [
        textwrap.fill(text, width, subsequent_indent=" " * 8 if text.startswith(" ") else "", break_on_hyphens=False)
        for text in paragraphs
    ]
    return "\n".join(wrapped)


def _arguments(settings: list[str] | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for setting in settings or []:
        name, separator, value = setting.partition("=")
        if not separator:
            raise typer.BadParameter(f"{setting!r}: expected name=value, such as max_loops=3", param_hint="--set")
        try:
            arguments[name] = json.loads(value)
        except json.JSONDecodeError:
            arguments[name] = value
    return arguments


def build_app() -> typer.Typer:
    """The command with its subcommands, those of other packages included."""
    app = typer.Typer(
        help="Multi-agent environments for LLM agents, and a trainer for teams of them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.command("list")(list_environments)
    app.command("info")(info)
    app.command("play")(play)
    app.command("check")(check)
    app.command("new")(new)
    app.add_typer(index_app, name="index")
    app.command("serve")(serve)
    for point in sorted(importlib.metadata.entry_points(group=COMMAND_GROUP), key=lambda point: point.name):
        try:
            app.command(point.name)(point.load())
        except Exception as error:  # noqa: BLE001  # another package's fault: the other commands go on
            warnings.warn(
                f"the command {point.name!r} ({point.value}) failed to load and is left out: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
    return app


def main() -> None:
    """Run the command; errors are sentences, the exit code is 0, 1 (failed) or 2 (usage)."""
    warnings.showwarning = _show_warning
    try:
        build_app()(prog_name="mas-envs")
    except (MasEnvsError, GymnasiumError, ModuleNotFoundError) as error:
        errors.print(f"[bold red]Error:[/bold red] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(_USAGE_ERROR if isinstance(error, ValueError | TypeError | GymnasiumError) else 1) from None


def _show_warning(message: Warning | str, *details: Any, **more: Any) -> None:
    errors.print(f"[yellow]Warning:[/yellow] {escape(str(message))}", highlight=False, soft_wrap=True)
