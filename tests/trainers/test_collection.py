"""Batches made ahead: in order, at the side of other work, and with weights that are one update old."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.test_trainer import records, without_times
from tests.trainers.tiny_team import tiny_settings
from trainers.collection import Collection
from trainers.config import SettingsError
from trainers.rollout import Rollout
from trainers.trainer import Trainer


def test_without_a_lag_nothing_is_made_ahead() -> None:
    made: list[int] = []

    def collect(iteration: int) -> int:
        made.append(iteration)
        return iteration + 1

    collection = Collection(collect, lag=0)
    collection.start(0)
    assert made == []
    assert [collection.take(0), collection.take(1)] == [1, 2]


def test_the_next_batch_is_made_while_its_caller_works() -> None:
    may_end = threading.Event()

    def collect(iteration: int) -> str:
        assert may_end.wait(10.0)
        return f"batch {iteration}"

    collection = Collection(collect, lag=1)
    collection.start(1)
    assert collection.is_ahead
    may_end.set()
    collection.settle()
    assert collection.take(1) == "batch 1"
    assert not collection.is_ahead


def test_an_error_comes_out_where_the_batch_is_taken() -> None:
    def collect(iteration: int) -> str:
        raise ZeroDivisionError("on purpose")

    collection = Collection(collect, lag=1)
    collection.start(3)
    collection.settle()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        collection.take(3)


class Watched(Trainer):
    """Notes which versions of the weights sampled each iteration's tokens."""

    def _collect(self, iteration: int) -> tuple[list[Rollout], int]:
        rollouts, dropped = super()._collect(iteration)
        versions = {turn.reply.policy_version for rollout in rollouts for turn in rollout.turns}
        self.versions = {**getattr(self, "versions", {}), iteration: versions}
        return rollouts, dropped


def team(folder: Path, shape: str) -> dict[str, Any]:
    policy: dict[str, Any] = {"model": str(folder), "lr": 1e-3, "sampling": {"max_tokens": 8}}
    if shape == "adapters":
        policy["lora"] = {"rank": 4}
    agents = {"solver": "one", "verifier": "one" if shape == "shared" else "two"}
    return {"policies": {policy_id: policy for policy_id in set(agents.values())}, "agents": agents}


@pytest.mark.parametrize("shape", ["separate", "shared", "adapters"])
def test_rollouts_made_ahead_come_from_weights_one_update_old(tiny_folder: Path, tmp_path: Path, shape: str) -> None:
    lagged = {"rollout": {"num_groups": 3, "group_size": 4, "async_lag": 1}}
    corrected = {"algorithm": {"importance": {"mode": "truncate"}}}
    settings = tiny_settings(tiny_folder, **team(tiny_folder, shape), **lagged, **corrected)
    seen = []
    for name in ("one", "two"):
        trainer = Watched(settings, tmp_path / name)
        trainer.train()
        assert trainer.versions == {0: {0}, 1: {0}, 2: {1}, 3: {2}}
        seen.append([without_times(record) for record in records(tmp_path / name, "iteration")])
    assert seen[0] == seen[1]
    gaps = [record["agents"]["solver_0"]["engine_gap"] for record in seen[0]]
    assert gaps[0] < 1e-4 < gaps[1]


def test_a_run_with_a_lag_goes_on_from_its_checkpoint_without_skipping_tasks(tiny_folder: Path, tmp_path: Path) -> None:
    settings = tiny_settings(
        tiny_folder,
        rollout={"num_groups": 3, "group_size": 4, "async_lag": 1},
        algorithm={"importance": {"mode": "mask"}},
    )
    trainer = Trainer(settings, tmp_path / "run")
    trainer.stop()
    with pytest.raises(Exception, match="stopped after iteration 1"):
        trainer.train()
    resumed = Trainer.resume(tmp_path / "run")
    assert resumed._order.cursor == 3
    resumed.train()
    assert [record["iteration"] for record in records(tmp_path / "run", "iteration")] == [1, 2, 3, 4]


def test_a_lag_without_a_correction_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(SettingsError, match="async_lag=1 trains on tokens of older weights and needs a correction"):
        tiny_settings(tiny_folder, rollout={"async_lag": 1})
