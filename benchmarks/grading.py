"""Speed of grading: ordinary answers, cold start, threads, and math-verify in process on the same answers.

Usage: python -m benchmarks.grading [--json FILE] [--repeats N]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mas_envs.math_loop.grading import MathGrader

__all__ = ["main"]

ORDINARY = [
    ("42", "42"), ("42", "41"), ("-7", "-7"), ("1000", "1{,}000"), (r"\frac{1}{2}", r"\dfrac{1}{2}"),
    (r"\frac{1}{2}", "0.5"), (r"\frac{7}{3}", r"2\frac{1}{3}"), ("3.14", "3.140"), (r"50\%", r"50\%"),
    (r"5\text{ cm}", r"5 \text{ cm}"), ("(1,2)", "(1, 2)"), ("3", "x=3"), (r"\sqrt{2}", r"\sqrt{2}"),
    ("B", r"\text{B}"),
    ("1,2,3", "3,2,1"), ("120", r"\binom{10}{3}"),
]  # fmt: skip
ALGEBRAIC = [
    ("x^2+2x+1", "(x+1)^2"), (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"), (r"\frac{\pi}{4}", r"\arctan 1"),
    (r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}"), ("a^2-b^2", "(a-b)(a+b)"),
]  # fmt: skip


def main() -> None:
    """Prints a table; writes the figures with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--repeats", type=int, default=200, help="passes over the ordinary answers")
    options = parser.parse_args()
    figures = measure(options.repeats)
    width = max(len(name) for name in figures)
    for name, value in figures.items():
        print(f"{name:<{width}}  {value:12.4f}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def measure(repeats: int) -> dict[str, float]:
    """All figures, by name with its unit."""
    figures: dict[str, float] = {}
    with MathGrader(num_workers=2) as grader:

        def ours(answer: str, prediction: str) -> bool:
            return grader.grade(f"So the answer is $\\boxed{{{prediction}}}$.", answer).correct

        figures |= _spread("ordinary", _times_ms(ours, ORDINARY * repeats))
        start = time.perf_counter()
        ours(*ALGEBRAIC[0])
        figures["cold start with a worker, ms"] = (time.perf_counter() - start) * 1e3
        figures |= _spread("algebra", _times_ms(ours, ALGEBRAIC * max(1, repeats // 10)))
        _throughput(ours, ALGEBRAIC * 4, 2)  # starts every worker and fills its caches
        for num_threads in (1, 8):
            for name, cases in (("ordinary", ORDINARY * repeats), ("algebra", ALGEBRAIC * max(1, repeats // 10))):
                figures[f"{name}, answers a second, {num_threads} threads"] = _throughput(ours, cases, num_threads)
    figures |= _spread("math-verify in process", _times_ms(_math_verify(), (ORDINARY + ALGEBRAIC) * 5))
    return figures


def _math_verify() -> Callable[[str, str], bool]:
    from math_verify import parse, verify

    def check(answer: str, prediction: str) -> bool:
        return bool(verify(parse(f"\\boxed{{{answer}}}"), parse(f"\\boxed{{{prediction}}}")))

    check("1", "1")
    return check


def _times_ms(check: Callable[[str, str], bool], cases: list[tuple[str, str]]) -> list[float]:
    times = []
    for case in cases:
        start = time.perf_counter()
        check(*case)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _spread(name: str, times_ms: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times_ms, n=100)
    return {f"{name}, median ms": cuts[49], f"{name}, p90 ms": cuts[89], f"{name}, p99 ms": cuts[98]}


def _throughput(check: Callable[[str, str], bool], cases: list[tuple[str, str]], num_threads: int) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(lambda case: check(*case), cases))
    return len(cases) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
