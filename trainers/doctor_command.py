"""`mas-envs doctor`: what this machine has, and what that means."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["doctor"]

console = Console()

_STYLES = {"fine": "green", "poor": "yellow", "missing": "yellow", "broken": "bold red"}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this machine has and what that means; exit code 1 when something is there and does not work.

    Example: mas-envs doctor
    """
    from trainers.doctor import examine

    findings = examine()
    is_fine = all(finding.status != "broken" for finding in findings)
    if as_json:
        typer.echo(json.dumps({"fine": is_fine, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        table = Table("", "", "found", "what that means")
        for finding in findings:
            status = f"[{_STYLES[finding.status]}]{finding.status}[/]"
            table.add_row(finding.name, status, escape(finding.found), escape(finding.meaning))
        console.print(table)
    if not is_fine:
        raise typer.Exit(1)
