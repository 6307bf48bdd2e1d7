"""The report of `check_env` as tables for a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas_envs.checks.findings import CheckReport, CheckResult

__all__ = ["render_report"]

_STYLES = {"passed": "green", "warned": "yellow", "failed": "bold red", "skipped": "dim"}


def render_report(report: CheckReport, console: Console, *, verbose: bool = False) -> None:
    """Print the report: every finding with its remedy, what was skipped and why, and how many checks passed.

    Args:
        report: What `check_env` returned, or `CheckFailedError.report`.
        console: Where to print.
        verbose: Whether to list the checks that passed too, and what each asks for.
    """
    listed = [result for result in report.results if verbose or result.status != "passed"]
    if listed:
        console.print(_checks_table(listed))
    if report.findings:
        console.print(_findings_table(report))
    verdict = "passed" if report.passed else "failed"
    num_passed = sum(result.status == "passed" for result in report.results)
    num_warnings = sum(finding.level == "warning" for finding in report.findings)
    summary = (
        f"{report.env_name} {verdict}: {len(report.findings) - num_warnings} errors, {num_warnings} warnings, "
        f"{len(report.skipped)} checks skipped, {num_passed} of {len(report.results)} checks passed"
    )
    console.print(Text(summary, style=_STYLES[verdict]))


def _checks_table(results: Sequence[CheckResult]) -> Table:
    checks = Table(show_edge=False)
    for heading in ("check", "result", "asks for, or why it was skipped"):
        checks.add_column(heading, overflow="fold")
    checks.add_column("s", justify="right")
    for result in results:
        style = _STYLES[result.status]
        note = result.title if result.reason is None else result.reason
        checks.add_row(
            Text(result.check),
            Text(result.status, style=style),
            Text(note, style="dim" if result.reason else ""),
            f"{result.duration_s:.2f}",
        )
    return checks


def _findings_table(report: CheckReport) -> Table:
    table = Table(title="Findings", title_justify="left", show_lines=True)
    for heading in ("check", "where", "found", "expected", "how to mend it"):
        table.add_column(heading, overflow="fold")
    for finding in report.findings:
        turn = "" if finding.turn is None else f"turn {finding.turn}"
        where = "\n".join(part for part in (finding.agent_id or "", turn, finding.field) if part)
        table.add_row(
            Text(finding.check, style="yellow" if finding.level == "warning" else "bold red"),
            Text(where),
            Text(finding.found),
            Text(finding.expected),
            Text(finding.remedy),
        )
    return table
