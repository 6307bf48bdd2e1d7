"""Runs side by side."""

import json
from pathlib import Path

import pytest

from tests.trainers.test_report import evaluation, iteration
from trainers.compare import compare_runs, write_comparison
from trainers.run_record import RunRecordError


def make_run(folder: Path, estimator: str, seed: int, last: float) -> Path:
    folder.mkdir()
    lines = [evaluation(0, 0.2), iteration(1), evaluation(1, last)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (folder / "settings.yaml").write_text(f"name: tiny\nseed: {seed}\nalgorithm: {{estimator: {estimator}}}\n")
    return folder


def test_runs_that_differ_in_the_seed_form_one_arm_with_an_interval(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"d{seed}", "drmas", seed, 0.8 + seed / 20) for seed in range(3)]
    runs.append(make_run(tmp_path / "g0", "grpo", 0, 0.7))
    drmas, grpo = compare_runs(runs)
    assert (drmas.name, drmas.seeds) == ("tiny · drmas", (0, 1, 2))
    assert drmas.final[0] == pytest.approx(0.85)
    assert 0.8 <= drmas.final[1] < 0.85 < drmas.final[2] <= 0.9
    assert grpo.final == pytest.approx((0.7, 0.7, 0.7))
    assert [point[0] for point in drmas.curve] == [0, 1]
    assert grpo.gain[0] == pytest.approx(0.5)


def test_page_is_self_contained(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "drmas", 0, 0.9)
    write_comparison([run], tmp_path / "out" / "page.html")
    page = (tmp_path / "out" / "page.html").read_text()
    assert "tiny \\u00b7 drmas" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_run_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(iteration(1)) + "\n")
    with pytest.raises(RunRecordError, match="has no evaluation yet; train it further, or leave it out"):
        compare_runs([tmp_path])
