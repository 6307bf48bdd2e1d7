"""Advantages of 65,536 turns: the vectorised estimators against a plain loop over dictionaries, in the same run.

    python benchmarks/advantages.py [--rows 65536] [--repeats 7] [--json]

The batch has groups of 8 rollouts of about 8 turns by 3 agents. Times are medians, one thread.
"""

import argparse
import json
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from trainers.advantages import compute_advantages

EPS = 1e-6
Batch = tuple[list[float], Sequence[Hashable], Sequence[Hashable], Sequence[Hashable]]


def make_batch(num_rows: int, seed: int = 0) -> Batch:
    """Rewards and text ids, the turns of a rollout next to each other as a trainer has them."""
    generator = np.random.default_rng(seed)
    num_rollouts = max(num_rows // 8, 1)
    rollout = np.sort(generator.integers(0, num_rollouts, num_rows))
    outcome = generator.integers(0, 2, num_rollouts)[rollout]
    rewards = (outcome - 0.1 * (generator.random(num_rows) < 0.1)).tolist()
    groups, names = [f"group_{index // 8}" for index in range(num_rollouts)], ("router_0", "searcher_0", "answerer_0")
    rollouts = [f"rollout_{index}" for index in range(num_rollouts)]
    agents = [names[index] for index in generator.integers(0, 3, num_rows)]
    return rewards, [groups[index] for index in rollout], agents, [rollouts[index] for index in rollout]


def mean_and_std(values: list[float]) -> tuple[float, float]:
    """Mean and sample deviation; 0 and 1 for a single value."""
    if len(values) == 1:
        return 0.0, 1.0
    mean = sum(values) / len(values)
    return mean, (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def loop_drmas(batch: Batch) -> list[float]:
    """The estimator `drmas`, row by row."""
    rewards, groups, agents, _ = batch
    samples: dict[Hashable, list[float]] = defaultdict(list)
    for reward, group, agent in zip(rewards, groups, agents, strict=True):
        samples[group, agent].append(reward)
    table = {key: mean_and_std(values) for key, values in samples.items()}
    result = []
    for reward, group, agent in zip(rewards, groups, agents, strict=True):
        mean, std = table[group, agent]
        result.append((reward - mean) / (std + EPS))
    return result


def loop_grpo(batch: Batch) -> list[float]:
    """The estimator `grpo`, row by row."""
    rewards, groups, _, rollouts = batch
    turns: dict[tuple[Hashable, Hashable], list[float]] = defaultdict(list)
    for reward, group, rollout in zip(rewards, groups, rollouts, strict=True):
        turns[group, rollout].append(reward)
    score = {key: sum(values) / len(values) for key, values in turns.items()}
    samples: dict[Hashable, list[float]] = defaultdict(list)
    for (group, _), value in score.items():
        samples[group].append(value)
    table = {group: mean_and_std(values) for group, values in samples.items()}
    result = []
    for group, rollout in zip(groups, rollouts, strict=True):
        mean, std = table[group]
        result.append((score[group, rollout] - mean) / (std + EPS))
    return result


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def measure(num_rows: int, repeats: int) -> list[dict[str, object]]:
    """One record per estimator: times of the loop and of both kinds of ids, and the largest difference."""
    batch = make_batch(num_rows)
    rewards = np.array(batch[0])
    groups, agents, rollouts = (np.unique(np.array(ids, dtype=str), return_inverse=True)[1] for ids in batch[1:])
    loops: dict[str, Callable[[Batch], list[float]]] = {"drmas": loop_drmas, "grpo": loop_grpo}
    results: list[dict[str, object]] = []
    for name, loop in loops.items():
        loop_ms = median_ms(partial(loop, batch), repeats)
        text_ms = median_ms(partial(compute_advantages, *batch, name), repeats)
        array_ms = median_ms(partial(compute_advantages, rewards, groups, agents, rollouts, name), repeats)
        gap = float(np.abs(np.array(loop(batch)) - compute_advantages(*batch, name)).max())
        results.append(
            {
                "estimator": name,
                "rows": num_rows,
                "loop_ms": round(loop_ms, 2),
                "text_ids_ms": round(text_ms, 2),
                "integer_ids_ms": round(array_ms, 2),
                "speedup_text": round(loop_ms / text_ms, 1),
                "speedup_integer": round(loop_ms / array_ms, 1),
                "max_difference": gap,
            }
        )
    return results


def main() -> None:
    """Prints the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=65_536, help="turns in the batch")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls per figure; the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    results = measure(arguments.rows, arguments.repeats)
    if arguments.json:
        versions = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
        print(json.dumps({"versions": versions, "results": results}, indent=2))
        return
    print(f"{arguments.rows} rows, median of {arguments.repeats}, ms")
    print(f"{'estimator':<10}{'loop':>9}{'text ids':>10}{'integer ids':>13}{'speed-up':>16}{'max difference':>17}")
    for row in results:
        speedup = f"{row['speedup_text']}x / {row['speedup_integer']}x"
        figures = f"{row['loop_ms']:>9}{row['text_ids_ms']:>10}{row['integer_ids_ms']:>13}"
        print(f"{row['estimator']:<10}{figures}{speedup:>16}{row['max_difference']:>17.1e}")


if __name__ == "__main__":
    main()
