"""AEC turns per second of `MathLoop-v0` as `make` gives it, side by side with PettingZoo's tictactoe.

    python benchmarks/env_speed.py [--rounds 40] [--batch-s 0.05] [--json]

Each case plays scripted episodes in the plain PettingZoo loop (`agent_iter`, `last` with its observation, `step`); the
grader does nothing. A turn is an action that is taken; a step is any pass through the loop, so the last steps of agents
that have ended count as steps and their time counts against the turns. The cases take turns in short batches, so that a
busy machine hits them alike; `best` is the fastest batch, what the machine does when nobody else is at it.
"""

import argparse
import importlib.util
import json
import platform
import statistics
import sys
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pettingzoo
from pettingzoo import AECEnv

import mas_envs
from mas_envs.math_loop.grading import Grade

GOAL = 30_000
SOLUTION = r"We add the numbers: 3 + 4 = 7, so the answer is \boxed{7}."
REASONING = " ".join(f"Step {step}: since x_{step} < y_{step}, the sum grows by ${step}$." for step in range(40))
LONG_SOLUTION = f"<think>{REASONING}</think>\n{REASONING}\nHence \\boxed{{\\frac{{1}}{{2}}}}."
VERDICT = "<verify>reject</verify>"
LONG_VERDICT = f"{REASONING}\nThe third step does not follow. {VERDICT}"


@dataclass
class Case:
    """An environment, what its agents do in each episode, and how fast that went."""

    name: str
    env: AECEnv[str, Any, Any]
    script: Sequence[Any]
    turn_rates: list[float] = field(default_factory=list)
    step_rates: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    """What one case reached."""

    name: str
    turns_per_s_best: float
    turns_per_s_median: float
    steps_per_s_best: float
    steps_per_s_median: float


UNGRADED = Grade(correct=True, extracted=None, status="graded")


def no_grading(completion: str, answer: str) -> Grade:
    """A grader that does nothing."""
    return UNGRADED


def play_episode(env: AECEnv[str, Any, Any], script: Sequence[Any]) -> tuple[int, int]:
    """Numbers of turns and of steps."""
    turns = steps = 0
    env.reset()
    for _ in env.agent_iter():
        _, _, terminated, truncated, _ = env.last()
        if terminated or truncated:
            env.step(None)
        else:
            env.step(script[turns])
            turns += 1
        steps += 1
    return turns, steps


def play_batch(case: Case, seconds: float) -> None:
    """Play for about `seconds`, and add to the rates of the case."""
    turns = steps = 0
    start = time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        new_turns, new_steps = play_episode(case.env, case.script)
        turns, steps = turns + new_turns, steps + new_steps
    case.turn_rates.append(turns / taken)
    case.step_rates.append(steps / taken)


def tictactoe() -> AECEnv[str, Any, Any]:
    """PettingZoo's own game; pygame, which only draws its board, may be missing."""
    if importlib.util.find_spec("pygame") is None:
        sys.modules["pygame"] = types.ModuleType("pygame")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        env: AECEnv[str, Any, Any] = pettingzoo.make("aec", "classic/tictactoe-v3")
    return env


def math_loop(**kwargs: Any) -> AECEnv[str, Any, Any]:
    """`MathLoop-v0` as `make` gives it."""
    return mas_envs.make("MathLoop-v0", grader=no_grading, **kwargs)


def measure(rounds: int, batch_s: float) -> list[Figures]:
    """All cases, batch by batch in turn; PettingZoo's last."""
    short, long = (SOLUTION, VERDICT, SOLUTION), (LONG_SOLUTION, LONG_VERDICT, LONG_SOLUTION)
    cases = [
        Case("MathLoop-v0, defaults", math_loop(), short),
        Case("MathLoop-v0, short prompts", math_loop(prompt_style="short"), short),
        Case(f"MathLoop-v0, completions of {len(LONG_SOLUTION):,} characters", math_loop(), long),
        Case("PettingZoo tictactoe-v3", tictactoe(), (0, 3, 1, 4, 2)),
    ]
    for case in cases:
        case.env.reset(seed=0)
        play_batch(case, batch_s)
        case.turn_rates.clear()
        case.step_rates.clear()
    for _ in range(rounds):
        for case in cases:
            play_batch(case, batch_s)
    return [
        Figures(
            case.name,
            max(case.turn_rates),
            statistics.median(case.turn_rates),
            max(case.step_rates),
            statistics.median(case.step_rates),
        )
        for case in cases
    ]


def table(figures: Sequence[Figures]) -> str:
    """The figures as text, and whether the first case meets the goal."""
    lines = [f"{'':46}{'turns/s':>20}{'steps/s':>20}", f"{'':46}" + f"{'best':>10}{'median':>10}" * 2]
    for row in figures:
        rates = (row.turns_per_s_best, row.turns_per_s_median, row.steps_per_s_best, row.steps_per_s_median)
        lines.append(f"{row.name:46}" + "".join(f"{rate:10,.0f}" for rate in rates))
    ours, theirs = figures[0], figures[-1]
    ratio = ours.turns_per_s_median / theirs.turns_per_s_median
    met = "met" if ours.turns_per_s_best > GOAL else "missed"
    lines.append(
        f"Goal of {GOAL:,} turns/s {met}: {ours.turns_per_s_best:,.0f} at best; {ratio:.1f} times {theirs.name} by "
        "the medians."
    )
    return "\n".join(lines)


def as_plain(figures: Sequence[Figures]) -> Mapping[str, Any]:
    """The figures and where they were taken, as plain values."""
    return {
        "benchmark": "env_speed",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "goal_turns_per_s": GOAL,
        "cases": [asdict(row) for row in figures],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="batches of each case")
    parser.add_argument("--batch-s", type=float, default=0.05, help="seconds a batch")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds, arguments.batch_s)
    print(json.dumps(as_plain(figures), indent=1) if arguments.json else table(figures))


if __name__ == "__main__":
    main()
