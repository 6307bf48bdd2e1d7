"""What a run writes down, and what it drops when it goes on from a checkpoint."""

import json
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainers.metrics import RunLog


def lines(run_dir: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    RunLog(tmp_path, tensorboard=False).write(
        {"kind": "iteration", "iteration": 1, "a": float("nan"), "b": [1, float("inf")]}
    )
    assert lines(tmp_path) == [{"kind": "iteration", "iteration": 1, "a": None, "b": [1, None]}]


def test_resumed_run_drops_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    log = RunLog(tmp_path, tensorboard=False)
    for iteration in range(1, 6):
        log.write({"kind": "iteration", "iteration": iteration})
        log.write_transcripts(f"iteration-{iteration:06d}", [{"iteration": iteration}])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "itera')
    RunLog(tmp_path, resume_at=3, tensorboard=False)
    assert [line["iteration"] for line in lines(tmp_path)] == [1, 2, 3]
    names = sorted(path.name for path in (tmp_path / "transcripts").iterdir())
    assert names == [f"iteration-{iteration:06d}.jsonl" for iteration in (1, 2, 3)]


def test_tensorboard_gets_every_number_under_its_path(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write({"kind": "iteration", "iteration": 4, "agents": {"solver_0": {"grad_norm": 0.5}}})
    log.close()
    log.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (point,) = events.Scalars("iteration/agents/solver_0/grad_norm")
    assert (point.step, point.value) == (4, 0.5)
