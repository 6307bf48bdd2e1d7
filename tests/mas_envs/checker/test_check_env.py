"""Each broken environment is caught by the check that is meant for it, and by no other; good ones have no findings."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

import mas_envs
from mas_envs.checker import CHECKS, CheckArgumentError, CheckFailedError, check_env, render_report
from mas_envs.conversation import ConversationEnv
from tests.mas_envs.checker.broken_envs import BROKEN
from tests.mas_envs.checker.good_envs import Review

CHECK_NAMES = [check.name for check in CHECKS]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_broken_environment_is_caught_by_its_check_and_no_other(broken: type[ConversationEnv]) -> None:
    skip = () if BROKEN[broken] == "second_process" else ("second_process",)  # a process each takes most of the time
    report = check_env(broken, num_episodes=8, step_limit_s=0.5, skip=skip, raise_on_findings=False)
    assert {finding.check for finding in report.findings} == {BROKEN[broken]}
    assert not report.passed or all(finding.level == "warning" for finding in report.findings)
    for finding in report.findings:
        assert finding.found
        assert finding.expected
        assert finding.remedy


def test_every_check_has_a_broken_environment() -> None:
    assert set(BROKEN.values()) == set(CHECK_NAMES)


@pytest.mark.parametrize("source", ["MathLoop-v0", "MathSolo-v0", Review], ids=str)
def test_good_environment_has_no_findings(source: str | Callable[[], Any]) -> None:
    report = check_env(source, num_episodes=8)
    assert report.findings == ()
    assert set(report.skipped) <= {"text_leak", "forged_tags"}  # nothing is private; nobody to forge for


def test_findings_raise_an_error_that_lists_them() -> None:
    broken = next(iter(BROKEN))
    with pytest.raises(CheckFailedError) as caught:
        check_env(broken, num_episodes=2, step_limit_s=0.5)
    assert BROKEN[broken] in str(caught.value)
    assert caught.value.report.findings


def test_report_is_a_table_that_names_check_and_remedy() -> None:
    broken = next(iter(BROKEN))
    report = check_env(broken, num_episodes=2, step_limit_s=0.5, raise_on_findings=False)
    console = Console(file=io.StringIO(), width=160)
    render_report(report, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert BROKEN[broken] in text


def test_report_names_checks_that_passed_only_when_asked() -> None:
    report = check_env("MathSolo-v0", num_episodes=2, skip=["second_process"])
    texts = {}
    for verbose in (False, True):
        console = Console(file=io.StringIO(), width=80)
        render_report(report, console, verbose=verbose)
        texts[verbose] = console.file.getvalue()  # type: ignore[attr-defined]
    assert "unseeded_reset" not in texts[False]
    assert "unseeded_reset" in texts[True]
    for text in texts.values():
        assert "MathSolo-v0 passed: 0 errors, 0 warnings" in text
        assert "left out by the caller" in text


def test_unknown_check_to_skip_is_refused() -> None:
    with pytest.raises(CheckArgumentError, match=r"skip=\['speed'\]: no such checks"):
        check_env("MathSolo-v0", skip=["speed"])


def test_unknown_id_names_the_nearest() -> None:
    with pytest.raises(Exception, match="did you mean 'MathLoop-v0'"):
        check_env("MathLop-v0")


def test_checker_is_exported() -> None:
    assert mas_envs.check_env is check_env
