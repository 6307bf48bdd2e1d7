"""Groups of rollouts that start from the same task, and dynamic sampling of groups that teach something."""

from collections.abc import Callable, Sequence

from mas_envs.tasks import Task
from trainers.rollout import EpisodeStart, Rollout

__all__ = ["collect_groups", "group_starts"]


def group_starts(tasks: Sequence[Task], group_size: int, iteration: int, first: int = 0) -> list[EpisodeStart]:
    """Every task `group_size` times; ids name iteration, group and member, counting groups from `first`."""
    return [
        EpisodeStart(f"{iteration}-{group}-{member}", f"{iteration}-{group}", task)
        for group, task in enumerate(tasks, start=first)
        for member in range(group_size)
    ]


def collect_groups(
    play: Callable[[int, int], list[Rollout]], num_groups: int, *, max_refills: int | None = None
) -> tuple[list[Rollout], int]:
    """The rollouts of one iteration; with `max_refills`, groups whose rollouts all earn the same are drawn anew.

    Source: dynamic sampling of DAPO, arXiv 2503.14476, section 3.2; differs in: a group counts as varied when any
    agent's return differs, and after `max_refills` the iteration goes on with fewer groups (with all of them, if none
    varies).

    Args:
        play: Plays this many new groups, numbered from its second argument.
        num_groups: Groups wanted.
        max_refills: Times that dropped groups are drawn anew; None keeps every group.

    Returns:
        The rollouts kept, and how many groups were dropped.
    """
    rollouts = play(num_groups, 0)
    if max_refills is None:
        return rollouts, 0
    kept, drawn = _varied(rollouts), num_groups
    for _ in range(max_refills):
        missing = num_groups - _count(kept)
        if not missing:
            break
        kept += _varied(play(missing, drawn))
        drawn += missing
    return (kept, drawn - _count(kept)) if kept else (rollouts, drawn - num_groups)


def _varied(rollouts: Sequence[Rollout]) -> list[Rollout]:
    returns: dict[str, set[tuple[float, ...]]] = {}
    for rollout in rollouts:
        returns.setdefault(rollout.group_id, set()).add(tuple(rollout.returns.values()))
    return [rollout for rollout in rollouts if len(returns[rollout.group_id]) > 1]


def _count(rollouts: Sequence[Rollout]) -> int:
    return len({rollout.group_id for rollout in rollouts})
