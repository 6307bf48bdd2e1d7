"""What a check says: faults, findings, results, the report, and the error that carries it."""

from dataclasses import dataclass
from typing import Literal

from mas_envs.errors import MasEnvsError

__all__ = [
    "CheckFailedError",
    "CheckReport",
    "CheckResult",
    "Fault",
    "Finding",
    "SkipCheckError",
]

Level = Literal["error", "warning"]
Status = Literal["passed", "warned", "failed", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong with an environment, as a check yields it."""

    field: str
    """What is concerned: `observation`, `infos['turn']`, `step()`."""
    found: str
    """What was found."""
    expected: str
    """What was expected instead."""
    remedy: str
    """How to mend it, in words for the environment's author."""
    agent_id: str | None = None
    """The agent concerned; None when it concerns the environment as a whole."""
    turn: int | None = None
    """Turns taken in the episode when it was seen; None when no episode was running."""
    level: Level = "error"
    """`error`: the contract is broken. `warning`: it works, but will hurt."""


@dataclass(frozen=True, kw_only=True)
class Finding(Fault):
    """A fault and the check that found it."""

    check: str
    """Name of the check."""

    def __str__(self) -> str:
        place = ", ".join(
            part for part in (self.agent_id or "", "" if self.turn is None else f"turn {self.turn}", self.field) if part
        )
        return f"[{self.check}] {place}: found {self.found}; expected {self.expected}. {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """How one check went."""

    check: str
    """Its name."""
    title: str
    """What it asks of an environment."""
    status: Status
    """`warned`: it found warnings only."""
    reason: str | None = None
    """Why it was skipped; None when it ran."""
    duration_s: float = 0.0
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What `check_env` found, and which checks ran."""

    env_name: str
    """The id or the name of the environment."""
    findings: tuple[Finding, ...]
    """Every finding, in the order of the checks."""
    results: tuple[CheckResult, ...]
    """One for each check, also for those that were skipped."""

    @property
    def passed(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def skipped(self) -> dict[str, str]:
        """Names of the checks that did not run -> why."""
        return {result.check: result.reason or "" for result in self.results if result.status == "skipped"}

    def __str__(self) -> str:
        counts = f"{len(self.results) - len(self.skipped)} checks ran, {len(self.skipped)} were skipped"
        if not self.findings:
            return f"{self.env_name}: no findings; {counts}"
        lines = "\n".join(f"- {finding}" for finding in self.findings)
        return f"{self.env_name}: {len(self.findings)} findings; {counts}\n{lines}"


class CheckFailedError(MasEnvsError, AssertionError):
    """An environment that breaks the contract; `report` says where.

    Args:
        report: What the checks found.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(str(report))
        self.report = report


class SkipCheckError(MasEnvsError):
    """Raised by a check that does not apply to an environment; its text is the reason."""
