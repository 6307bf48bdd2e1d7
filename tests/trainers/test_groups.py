"""Groups, and dynamic sampling of those that teach something."""

from mas_envs import Task
from trainers.groups import collect_groups, group_starts
from trainers.rollout import Rollout


def rollouts(group: int, returns: list[float]) -> list[Rollout]:
    return [
        Rollout(f"r{group}-{i}", f"g{group}", None, "t", "s", (), {"solver_0": value}, True, "completed")
        for i, value in enumerate(returns)
    ]


class Play:
    """Plays groups whose returns are given in order."""

    def __init__(self, *returns: list[float]) -> None:
        self.returns, self.calls = returns, list[tuple[int, int]]()

    def __call__(self, num_groups: int, first: int) -> list[Rollout]:
        self.calls.append((num_groups, first))
        return [each for group in range(first, first + num_groups) for each in rollouts(group, self.returns[group])]


SAME, VARIED = [1.0, 1.0], [0.0, 1.0]


def test_every_task_is_played_by_a_whole_group_under_ids_of_its_own() -> None:
    starts = group_starts([Task("a", "1+1", "2"), Task("b", "2+2", "4")], 2, iteration=7, first=3)
    assert [start.rollout_id for start in starts] == ["7-3-0", "7-3-1", "7-4-0", "7-4-1"]
    assert [start.group_id for start in starts] == ["7-3", "7-3", "7-4", "7-4"]


def test_without_dynamic_sampling_every_group_is_kept() -> None:
    kept, dropped = collect_groups(Play(SAME, VARIED), 2)
    assert len(kept) == 4
    assert dropped == 0


def test_groups_without_variance_are_drawn_anew() -> None:
    play = Play(SAME, VARIED, SAME, VARIED)
    kept, dropped = collect_groups(play, 2, max_refills=3)
    assert {rollout.group_id for rollout in kept} == {"g1", "g3"}
    assert dropped == 2
    assert play.calls == [(2, 0), (1, 2), (1, 3)]


def test_refills_are_bounded_and_the_iteration_goes_on_with_fewer() -> None:
    kept, dropped = collect_groups(Play(VARIED, SAME, SAME, SAME), 2, max_refills=2)
    assert {rollout.group_id for rollout in kept} == {"g0"}
    assert dropped == 3


def test_when_no_group_varies_the_first_ones_are_kept() -> None:
    kept, dropped = collect_groups(Play(SAME, SAME, SAME), 1, max_refills=2)
    assert {rollout.group_id for rollout in kept} == {"g0"}
    assert dropped == 2
