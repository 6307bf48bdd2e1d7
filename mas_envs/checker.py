"""`check_env`: whether an environment keeps the contract; what an author of an environment runs."""

import inspect
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mas_envs.checks.agents import agent_names, agent_tables
from mas_envs.checks.determinism import reset_forgets, same_in_second_process, same_seed, seeds_differ, unseeded_reset
from mas_envs.checks.endings import calls_in_order, closes, dead_steps, episodes_end, limit_truncates
from mas_envs.checks.experts import experts_pure
from mas_envs.checks.findings import (
    CheckFailedError,
    CheckReport,
    CheckResult,
    Fault,
    Finding,
    SkipCheckError,
    Status,
)
from mas_envs.checks.forging import tags_not_forged
from mas_envs.checks.global_random import global_generators_untouched
from mas_envs.checks.hostile import any_text_taken, wrong_types_refused
from mas_envs.checks.infos import infos_fixed, success_said
from mas_envs.checks.isolation import copies_independent, same_in_threads, side_by_side
from mas_envs.checks.leaks import answer_hidden, texts_hidden
from mas_envs.checks.observing import handed_out_stays, observe_pure
from mas_envs.checks.pettingzoo_tests import passes_api_test, passes_render_test, passes_seed_test
from mas_envs.checks.play import plays
from mas_envs.checks.prompt_growth import prompts_grow_linearly
from mas_envs.checks.receiving import books_left_alone
from mas_envs.checks.rewards import rewards_accounted, rewards_paid
from mas_envs.checks.subject import CheckArgumentError, EnvSource, Subject, subject_of
from mas_envs.checks.task_choice import task_chosen
from mas_envs.checks.text_spaces import spaces_hold
from mas_envs.checks.time_limit import TimeUp
from mas_envs.checks.transcripts import transcript_faithful
from mas_envs.error_texts import describe_error

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "CHECKS",
    "Check",
    "CheckArgumentError",
    "CheckFailedError",
    "CheckReport",
    "CheckResult",
    "Finding",
    "check_env",
    "render_report",
]


@dataclass(frozen=True)
class Check:
    """One check, and the checks that must have passed for its verdict to mean anything."""

    name: str
    """What findings call it."""
    run: Callable[[Subject], Iterator[Fault]]
    """Yields faults; raises `SkipCheckError` where it does not apply."""
    needs: tuple[str, ...] = ("plays",)
    """Where one of these failed this one is skipped: its findings would be echoes of the first fault."""

    @property
    def title(self) -> str:
        """What it asks of an environment, in one sentence."""
        return (inspect.getdoc(self.run) or self.name).partition("\n")[0]


_COMPARES = ("plays", "agent_tables", "experts", "same_seed", "observe")
_TAKES_SAMPLES = ("plays", "spaces", "rewards", "hostile_text")
CHECKS: tuple[Check, ...] = (
    Check("plays", plays, ()),
    Check("agent_names", agent_names),
    Check("agent_tables", agent_tables),
    Check("receive", books_left_alone, ("plays", "agent_tables")),
    Check("spaces", spaces_hold),
    Check("infos", infos_fixed),
    Check("termination", episodes_end),
    Check("dead_steps", dead_steps, ("plays", "agent_tables", "termination")),
    Check("rewards", rewards_accounted, ("plays", "dead_steps")),
    Check("payment", rewards_paid, ("plays", "dead_steps", "rewards")),
    Check("success", success_said, ("plays", "infos", "termination", "dead_steps")),
    Check("experts", experts_pure),
    Check("same_seed", same_seed, ("plays", "experts")),
    Check("global_random", global_generators_untouched, ("plays", "same_seed")),
    Check("seeds_differ", seeds_differ, ("plays", "same_seed")),
    Check("observe", observe_pure, ("plays", "agent_tables", "experts", "same_seed")),
    Check("handed_out", handed_out_stays, _COMPARES),
    Check("reset", reset_forgets, _COMPARES),
    Check("unseeded_reset", unseeded_reset, (*_COMPARES, "seeds_differ")),
    Check("task_choice", task_chosen),
    Check("side_by_side", side_by_side, _COMPARES),
    Check("deepcopy", copies_independent, (*_COMPARES, "side_by_side")),
    Check("threads", same_in_threads, (*_COMPARES, "reset", "side_by_side")),
    Check("turn_limit", limit_truncates, ("plays", "same_seed", "termination")),
    Check("call_order", calls_in_order, ("plays", "agent_tables", "termination", "dead_steps")),
    Check("close", closes, ("plays", "termination")),
    Check("transcript", transcript_faithful),
    Check("hostile_text", any_text_taken, ("plays", "spaces", "rewards")),
    Check("answer_leak", answer_hidden),
    Check("text_leak", texts_hidden, ("plays", "spaces", "hostile_text")),
    Check("forged_tags", tags_not_forged, ("plays", "same_seed", "reset")),
    Check("wrong_type", wrong_types_refused, (*_COMPARES, "side_by_side")),
    Check("prompt_growth", prompts_grow_linearly),
    Check("pettingzoo_api", passes_api_test, ("agent_tables", "infos", "dead_steps", *_TAKES_SAMPLES)),
    Check("pettingzoo_seed", passes_seed_test, (*_COMPARES, *_TAKES_SAMPLES)),
    Check("pettingzoo_render", passes_render_test, _TAKES_SAMPLES),
    Check("second_process", same_in_second_process, (*_COMPARES, "pettingzoo_seed")),
)
"""Every check, in the order in which they run."""


def check_env(
    env_or_id: EnvSource,
    *,
    seed: int = 0,
    num_episodes: int = 64,
    step_limit_s: float = 10.0,
    skip: Collection[str] = (),
    raise_on_findings: bool = True,
) -> CheckReport:
    """Whether an environment keeps the contract of `mas_envs`: every check is run, and all findings come together.

    >>> report = check_env("MathSolo-v0", num_episodes=2, skip=["second_process"])
    >>> report.passed, report.skipped["second_process"]
    (True, 'left out by the caller')

    Args:
        env_or_id: An id, a spec, a function without arguments that makes the environment, or an environment, of which
            copies are checked. An id or a function at the top of a module allows every check.
        seed: Seed of all episodes and actions; the same seed gives the same report.
        num_episodes: Episodes that are played in threads.
        step_limit_s: Longest time that one call into the environment may take; watched in the main thread only.
        skip: Names of checks to leave out; they are listed as skipped.
        raise_on_findings: Whether an error among the findings raises; warnings never do.

    Returns:
        The findings, and which checks ran or were skipped and why.

    Raises:
        CheckFailedError: If there are errors among the findings and `raise_on_findings` is True; `.report` has them.
        CheckArgumentError: If `env_or_id` or a name in `skip` cannot be used.
        gymnasium.error.UnregisteredEnv: If there is no such id.
    """
    names = [check.name for check in CHECKS]
    if unknown := sorted(set(skip) - set(names)):
        raise CheckArgumentError(f"skip={unknown!r}: no such checks; there are {', '.join(names)}")
    if num_episodes < 1 or step_limit_s <= 0:
        raise CheckArgumentError(
            f"num_episodes={num_episodes!r}, step_limit_s={step_limit_s!r}: expected at least 1, and a time over 0"
        )
    subject = subject_of(env_or_id, seed=seed, num_episodes=num_episodes, step_limit_s=step_limit_s)
    findings: list[Finding] = []
    results: list[CheckResult] = []
    for check in CHECKS:
        failed = {finding.check for finding in findings if finding.level == "error"}
        reason = "left out by the caller" if check.name in skip else _echo_of(check, failed)
        result, found = _run(check, subject, reason)
        results.append(result)
        findings += found
    report = CheckReport(env_name=subject.name, findings=tuple(findings), results=tuple(results))
    if raise_on_findings and not report.passed:
        raise CheckFailedError(report)
    return report


def render_report(report: CheckReport, console: "Console", *, verbose: bool = False) -> None:
    """Print a report as tables, with the checks that passed if `verbose`; see `mas_envs.checks.report_table`."""
    from mas_envs.checks.report_table import render_report  # here, so that `import mas_envs` does not import rich

    render_report(report, console, verbose=verbose)


def _echo_of(check: Check, failed: Collection[str]) -> str | None:
    causes = [name for name in check.needs if name in failed]
    return f"its findings would echo those of {', '.join(causes)}: mend these first" if causes else None


def _run(check: Check, subject: Subject, reason: str | None) -> tuple[CheckResult, list[Finding]]:
    """How a check went; each kind of fault of an agent is reported once, where it was first seen."""
    began = time.perf_counter()
    faults: dict[tuple[str | None, str], Fault] = {}
    if reason is None:
        try:
            for fault in check.run(subject):
                faults.setdefault((fault.agent_id, fault.field), fault)
        except SkipCheckError as skipped:
            reason = str(skipped)
        except (Exception, TimeUp) as error:  # noqa: BLE001  # third-party code may raise anything: that is a finding
            faults.setdefault((None, "error"), _raised(error))
    findings = [Finding(check=check.name, **vars(fault)) for fault in faults.values()]
    levels = {finding.level for finding in findings}
    status: Status = (
        "failed" if "error" in levels else "warned" if levels else "skipped" if reason is not None else "passed"
    )
    duration_s = time.perf_counter() - began
    return CheckResult(
        check=check.name, title=check.title, status=status, reason=None if levels else reason, duration_s=duration_s
    ), findings


def _raised(error: BaseException) -> Fault:
    return Fault(
        field="an error during the check",
        found=describe_error(error),
        expected="no error where this check calls the environment",
        remedy="run the check again under a debugger, with skip=[...] for the others, to see the whole traceback",
    )
