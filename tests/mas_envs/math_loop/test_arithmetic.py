"""The embedded arithmetic: right answers, splits that never meet, the same tasks everywhere."""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from mas_envs import TaskSet, load_tasks
from mas_envs.errors import TaskError
from mas_envs.math_loop.arithmetic import LEVELS, arithmetic_tasks

OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
}


def value_of(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp):
        result: int = OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
        return result
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return node.value


def shape(node: ast.expr) -> str:
    """One spelling for all problems that differ by the order of operands of + and * only."""
    if not isinstance(node, ast.BinOp):
        return ast.unparse(node)
    parts = [shape(node.left), shape(node.right)]
    return f"({type(node.op).__name__}: {parts if isinstance(node.op, ast.Sub) else sorted(parts)})"


def parsed(tasks: TaskSet) -> list[ast.expr]:
    return [ast.parse(task.question, mode="eval").body for task in tasks]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_answer_is_right_and_every_problem_is_new(level: int, split: Any) -> None:
    tasks = arithmetic_tasks(level=level, split=split)
    assert [str(value_of(node)) for node in parsed(tasks)] == [task.answer for task in tasks]
    assert len({task.question for task in tasks}) == len({task.id for task in tasks}) == len(tasks)
    assert {task.source for task in tasks} == {f"arithmetic-{level}"}


@pytest.mark.parametrize("seed", [0, 3])
def test_splits_never_meet_over_levels_sizes_and_commuted_operands(seed: int) -> None:
    shapes: dict[str, set[str]] = {"train": set(), "test": set()}
    for level in LEVELS:
        for size in (2, None):
            shapes["train"] |= set(map(shape, parsed(arithmetic_tasks(level=level, size=size, seed=seed))))
            shapes["test"] |= set(map(shape, parsed(arithmetic_tasks(level=level, size=size, seed=seed, split="test"))))
    assert len(shapes["test"]) > 500
    assert shapes["train"] & shapes["test"] == set()


def test_smaller_set_is_the_beginning_of_a_larger_one() -> None:
    assert list(arithmetic_tasks(size=10)) == list(arithmetic_tasks(size=50))[:10]


def test_levels_grow_harder() -> None:
    longest = {level: max(len(task.question) for task in arithmetic_tasks(level=level)) for level in LEVELS}
    assert longest == dict(sorted(longest.items(), key=lambda pair: pair[1]))
    operands = [int(number) for task in arithmetic_tasks(level=2) for number in re.findall(r"\d+", task.question)]
    assert max(operands) < 100
    assert max(int(str(task.answer)) for task in arithmetic_tasks(level=2)) < 100


def test_seed_changes_the_problems_and_the_split() -> None:
    first, second = (arithmetic_tasks(level=3, size=50, seed=seed) for seed in (0, 1))
    assert {task.question for task in first} != {task.question for task in second}
    assert list(first) == list(arithmetic_tasks(level=3, size=50, seed=0))


def test_share_of_the_test_split_is_what_was_asked() -> None:
    sizes = Counter({split: len(arithmetic_tasks(level=1, split=split, test_frac=0.3)) for split in ("train", "test")})
    assert sum(sizes.values()) == 100
    assert 15 <= sizes["test"] <= 45


def test_tasks_are_the_same_in_every_process() -> None:
    script = (
        "import json; from mas_envs import load_tasks; "
        "names = [{'name': 'arithmetic', 'level': n} for n in range(1, 6)]; "
        "print(json.dumps([task.question for name in names for task in load_tasks(name)][::99]))"
    )
    outputs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for hash_seed in ("1", "99")
    ]
    here = [task.question for level in LEVELS for task in load_tasks({"name": "arithmetic", "level": level})][::99]
    assert outputs == [here, here]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 6}, "arithmetic level 6: expected one of 1, 2, 3, 4, 5"),
        ({"level": "2"}, "arithmetic level '2': expected one of"),
        ({"level": True}, "arithmetic level True: expected one of"),
        ({"split": "dev"}, "arithmetic split 'dev': expected 'train' or 'test'"),
        ({"test_frac": 0}, "arithmetic test_frac=0: expected a share between 0 and 1"),
        ({"test_frac": "a"}, "arithmetic test_frac='a': expected a share"),
        ({"size": 0}, "arithmetic size=0: expected a whole number >= 1"),
        ({"size": "3"}, "arithmetic size='3': expected a whole number"),
        ({"seed": None}, "arithmetic seed=None: expected a whole number"),
        ({"level": 1, "size": 101}, "arithmetic level 1 has only .. different train problems, not 101; lower size"),
        ({"level": 1, "split": "test", "test_frac": 1e-9}, "has only 0 different test problems, not 1; lower size, "),
    ],
)
def test_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        arithmetic_tasks(**options)
