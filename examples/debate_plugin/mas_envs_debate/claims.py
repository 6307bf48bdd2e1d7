"""Claims to argue about: two sums, one right and one wrong."""

import random
from typing import Literal

from mas_envs import Task, TaskSet

__all__ = ["claims"]


def claims(*, split: Literal["train", "test"] = "train", size: int = 256, seed: int = 0) -> TaskSet:
    """Sums below 20 with a wrong rival answer in the metadata; one left operand in four is held out.

    Args:
        split: `train` or `test`; they share no left operand.
        size: Number of tasks.
        seed: Seed of the numbers.
    """
    rng = random.Random(f"{seed}/{split}")
    lefts = [number for number in range(10) if (number % 4 == 3) == (split == "test")]
    tasks = []
    for index in range(size):
        left, right = rng.choice(lefts), rng.randrange(10)
        rival = rng.choice([number for number in range(20) if number != left + right])
        question = f"{left}+{right}"
        tasks.append(Task(f"{index}", question, str(left + right), "claims", {"rival": str(rival)}))
    return TaskSet(tasks, name=f"claims-{split}")
