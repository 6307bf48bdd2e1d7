"""The report of a run: one self-contained page, for people who were not there."""

import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from trainers.metrics import plain
from trainers.run_record import RunRecord, read_run

__all__ = ["render_page", "verdict", "write_report"]

_MOST_TRANSCRIPTS = 400


def write_report(run_dir: Path | str, *, title: str | None = None) -> Path:
    """Write `report.html` into a run directory, also while the run is going; returns its path.

    The page holds everything it shows: it loads nothing from anywhere, and model text in it is inert.

    Args:
        run_dir: The run directory.
        title: Heading; None is the run's name.

    Raises:
        RunRecordError: If the directory holds no readable run.
    """
    run = read_run(run_dir)
    shown = sample_transcripts(run.transcripts, _MOST_TRANSCRIPTS)
    data = {
        "title": title or str(run.settings.get("name", run.run_dir.name)),
        "verdict": verdict(run),
        "settings": run.settings,
        "iterations": run.iterations,
        "evaluations": run.evaluations,
        "transcripts": shown,
        "num_transcripts": len(run.transcripts),
    }
    path = run.run_dir / "report.html"
    aside = path.with_suffix(".html.writing")
    aside.write_text(render_page("report.html", "page.js", data), encoding="utf-8")
    os.replace(aside, path)
    return path


def verdict(run: RunRecord) -> str:
    """One sentence on how the run went, from its evaluations."""
    if not run.evaluations:
        return f"No evaluation yet; {len(run.iterations)} iterations are done."
    first, last = run.evaluations[0], run.evaluations[-1]
    low, high = last["interval"]
    where = f"{last['num_tasks']} held-out tasks ({last['tasks']})"
    interval = f"95 % interval {low:.0%} to {high:.0%}"
    if first is last:
        return f"Success is {last['avg_at_k']:.0%} on {where}, {interval}."
    verb = "rose" if low > first["interval"][1] else "fell" if high < first["interval"][0] else None
    if verb is None:
        return (
            f"Success was {first['avg_at_k']:.0%} and is {last['avg_at_k']:.0%} on {where} after "
            f"{last['iteration'] - first['iteration']} iterations, {interval}: no change that these tasks can show."
        )
    return (
        f"Success {verb} from {first['avg_at_k']:.0%} to {last['avg_at_k']:.0%} on {where} in "
        f"{last['iteration'] - first['iteration']} iterations, {interval}."
    )


def sample_transcripts(transcripts: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most `most` transcripts, spread over the run, the first and the last among them."""
    if len(transcripts) <= most:
        return list(transcripts)
    step = (len(transcripts) - 1) / (most - 1)
    return [transcripts[round(place * step)] for place in range(most)]


def render_page(body: str, script: str, data: dict[str, Any]) -> str:
    """The page with body, style, scripts and data put in; no text in the data can end its script element."""
    folder = resources.files("trainers") / "report_page"
    payload = json.dumps(plain(data), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    page = (folder / "page.html").read_text(encoding="utf-8")
    parts = {"/*BODY*/": body, "/*STYLE*/": "style.css", "/*CHARTS*/": "charts.js", "/*PAGE*/": script}
    for mark, name in parts.items():
        page = page.replace(mark, (folder / name).read_text(encoding="utf-8"))
    return page.replace("/*DATA*/", payload)
