"""The order in which training tasks are drawn: every task once an epoch, shuffled anew each time."""

import numpy as np

from trainers.seeds import derive_seed

__all__ = ["TaskOrder"]


class TaskOrder:
    """Endless task indices; its whole state is one number.

    >>> order = TaskOrder(num_tasks=3, seed=0)
    >>> sorted(order.take(3))
    [0, 1, 2]

    Args:
        num_tasks: Tasks in the set, >= 1.
        seed: Seed of the order.
        cursor: How many tasks have been drawn already.
    """

    def __init__(self, num_tasks: int, seed: int, cursor: int = 0) -> None:
        self._num_tasks = num_tasks
        self._seed = seed
        self.cursor = cursor
        self._epoch = -1
        self._shuffled: list[int] = []

    def take(self, num: int) -> list[int]:
        """The next `num` indices."""
        taken = []
        for _ in range(num):
            epoch, place = divmod(self.cursor, self._num_tasks)
            if epoch != self._epoch:
                rng = np.random.default_rng(derive_seed(self._seed, "task-order", epoch))
                self._epoch, self._shuffled = epoch, rng.permutation(self._num_tasks).tolist()
            taken.append(self._shuffled[place])
            self.cursor += 1
        return taken
