"""The report page: what it says, that it loads nothing, and that hostile text in it is inert."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainers.report import sample_transcripts, verdict, write_report
from trainers.run_record import RunRecordError, read_run

HOSTILE = "</script><script>window.hacked = 1</script><!-- \u2028 <img src=x onerror='window.hacked=1'>"


def iteration(number: int, **changes: Any) -> dict[str, Any]:
    agent = {
        "role": "solver",
        "policy_id": "p",
        "num_turns": 8,
        "turns_per_episode": 1.0,
        "valid_frac": 0.9,
        "return_mean": 0.5,
        "grad_norm": 0.5 + number,
        "grad_norm_max": 0.5 + number,
        "advantage_mean": 0.0,
        "advantage_rms": 1.0,
        "zero_advantage_frac": 0.1,
        "inflation": None,
        "entropy": 0.4,
        "advantage_histogram": {"edges": [-1.0, -1e-9, 1e-9, 1.0], "counts": [2, 3, 3]},
        "completion_tokens": 40,
        "prompt_tokens": 80,
        "seconds": 0.2,
    }
    plain = {
        "kind": "iteration",
        "iteration": number,
        "success": number / 10,
        "num_rollouts": 8,
        "seconds": {"rollout": 0.1, "update": 0.2, "total": 0.3},
        "agents": {"solver_0": agent, "verifier_0": {**agent, "role": "verifier"}},
        "policies": {"p": {"skipped_updates": 0}},
        "alarms": [],
    }
    return {**plain, **changes}


def evaluation(number: int, success: float) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "iteration": number,
        "tasks": "arithmetic-2-test",
        "num_tasks": 256,
        "n": 1,
        "avg_at_k": success,
        "interval": [success - 0.05, success + 0.05],
        "agents": {"solver_0": {"cost": None}},
    }


def transcript(number: int, text: str = "\\boxed{42}", task_id: str = "t") -> dict[str, Any]:
    turn = {
        "agent_id": "solver_0",
        "text": text,
        "prompt": text,
        "valid": False,
        "reason": "no box",
        "reward_terms": {"correct": 1.0},
        "reward": 1.0,
        "advantage": 0.5,
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "seconds": 0.01,
        "finish_reason": "stop",
    }
    return {
        "iteration": number,
        "rollout_id": f"r{number}",
        "group_id": "g",
        "task_id": task_id,
        "source": "arithmetic-2",
        "question": f"17+25 {text}",
        "answer": "42",
        "success": number > 2,
        "status": "completed",
        "error": None,
        "returns": {"solver_0": 1.0},
        "turns": [turn],
    }


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    alarm = {"agent_id": "verifier_0", "name": "never_called", "message": "no turn in 5 iterations"}
    lines = [
        evaluation(0, 0.23),
        *(iteration(n) for n in range(1, 6)),
        iteration(6, alarms=[alarm]),
        evaluation(6, 0.98),
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"kind": "itera')
    (tmp_path / "settings.yaml").write_text(
        "name: test run\nseed: 3\nenv: {id: MathLoop-v0}\nalgorithm: {estimator: drmas}\n"
    )
    (tmp_path / "transcripts").mkdir()
    for number in (1, 6):
        path = tmp_path / "transcripts" / f"iteration-{number:06d}.jsonl"
        path.write_text(
            json.dumps(transcript(number)) + "\n" + json.dumps(transcript(number, HOSTILE, "hostile")) + "\n"
        )
    return tmp_path


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_page_holds_everything_and_loads_nothing(run_dir: Path) -> None:
    page = write_report(run_dir).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\(""", page)
    data = embedded(page)
    assert len(data["iterations"]) == 6
    assert data["transcripts"][1]["turns"][0]["text"] == HOSTILE


def test_hostile_text_cannot_leave_its_data_element(run_dir: Path) -> None:
    page = write_report(run_dir).read_text()
    assert "window.hacked" in page
    assert "<img src=x" not in page
    assert page.count("<script") == 2


def test_verdict_names_change_tasks_and_interval(run_dir: Path) -> None:
    assert verdict(read_run(run_dir)) == (
        "Success rose from 23% to 98% on 256 held-out tasks (arithmetic-2-test) in 6 iterations, "
        "95 % interval 93% to 103%."
    )


def test_verdict_claims_no_rise_where_the_intervals_overlap(run_dir: Path) -> None:
    run = read_run(run_dir)
    run.evaluations[0]["interval"] = [0.10, 0.95]
    assert "Success was 23% and is 98% on 256 held-out" in verdict(run)
    assert verdict(run).endswith("no change that these tasks can show.")


def test_line_that_is_being_written_is_left_out(run_dir: Path) -> None:
    assert len(read_run(run_dir).iterations) == 6


def test_damaged_line_is_named(run_dir: Path) -> None:
    metrics = run_dir / "metrics.jsonl"
    metrics.write_text("{broken\n" + metrics.read_text())
    with pytest.raises(RunRecordError, match=r"metrics\.jsonl, line 1 is damaged"):
        write_report(run_dir)


def test_directory_without_a_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunRecordError, match=r"holds no run \(no metrics.jsonl\); expected a directory"):
        write_report(tmp_path)


def test_run_without_an_evaluation_gets_a_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(iteration(1)) + "\n")
    assert "No evaluation yet; 1 iterations are done." in write_report(tmp_path).read_text()


def test_transcripts_are_sampled_from_first_to_last() -> None:
    every = [transcript(number) for number in range(1000)]
    shown = sample_transcripts(every, 40)
    assert len(shown) == 40
    assert (shown[0]["iteration"], shown[-1]["iteration"]) == (0, 999)
    assert sample_transcripts(every[:10], 40) == every[:10]


def test_browser_draws_charts_and_transcripts_without_an_error(run_dir: Path, tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine; `apt-get install chromium` brings it")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --virtual-time-budget=3000 --dump-dom"
    profile = tmp_path / "profile"
    page = write_report(run_dir)
    command = [chromium, *flags.split(), f"--user-data-dir={profile}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    dom = done.stdout
    assert 'data-ready="true"' in dom
    assert re.search(r'<p id="script-errors" hidden="">\s*</p>', dom)
    assert dom.count("<svg") >= 13
    assert dom.count('class="rollout') >= 4
    assert "never called" in dom
    assert "<ins>" in dom or "The same problem" in dom
