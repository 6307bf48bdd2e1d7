"""The order of training tasks."""

from hypothesis import given
from hypothesis import strategies as st

from trainers.task_order import TaskOrder


@given(st.integers(1, 20), st.integers(0, 5), st.integers(1, 30))
def test_order_goes_on_from_its_cursor(num_tasks: int, seed: int, first: int) -> None:
    straight = TaskOrder(num_tasks, seed).take(first + 10)
    order = TaskOrder(num_tasks, seed)
    assert order.take(first) + TaskOrder(num_tasks, seed, order.cursor).take(10) == straight


@given(st.integers(1, 20), st.integers(0, 5))
def test_every_task_comes_once_an_epoch(num_tasks: int, seed: int) -> None:
    order = TaskOrder(num_tasks, seed)
    for _ in range(3):
        assert sorted(order.take(num_tasks)) == list(range(num_tasks))


def test_epochs_and_seeds_differ() -> None:
    order = TaskOrder(50, 0)
    assert order.take(50) != order.take(50)
    assert TaskOrder(50, 0).take(50) != TaskOrder(50, 1).take(50)
