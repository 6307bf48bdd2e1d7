"""Alarms sound when a run goes wrong, once, and not before."""

from typing import Any

import pytest

from trainers.alarms import Alarms

HEALTHY = {
    "num_turns": 20,
    "entropy": 0.5,
    "grad_norm_max": 1.0,
    "valid_frac": 0.95,
    "zero_advantage_frac": 0.3,
}


def record(success: float = 0.5, skipped: int = 0, lost: int = 0, **agent: Any) -> dict[str, Any]:
    return {
        "success": success,
        "num_rollouts": 8,
        "lost_rollouts": lost,
        "policies": {"p": {"skipped_updates": skipped}},
        "agents": {"solver_0": HEALTHY, "verifier_0": {**HEALTHY, **agent}},
    }


def heard(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    alarms = Alarms()
    return [(alarm["agent_id"], alarm["name"]) for each in records for alarm in alarms.check(each)]


def test_healthy_run_is_quiet() -> None:
    assert heard([record()] * 20) == []


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"num_turns": 0, "entropy": None}, "never_called"),
        ({"entropy": 0.001}, "no_entropy"),
        ({"valid_frac": 0.2}, "invalid_actions"),
        ({"zero_advantage_frac": 1.0}, "no_signal"),
    ],
)
def test_lasting_fault_of_an_agent_sounds_once(bad: dict[str, Any], name: str) -> None:
    assert heard([record()] * 6 + [record(**bad)] * 12) == [("verifier_0", name)]
    assert heard([record()] * 6 + [record(**bad)] * 3) == []


def test_gradient_spike_sounds_in_its_iteration() -> None:
    assert heard([record()] * 10 + [record(grad_norm_max=50.0)]) == [("verifier_0", "gradient_spike")]


def test_fall_of_success_sounds_and_low_success_does_not() -> None:
    assert heard([record(0.8)] * 6 + [record(0.1)] * 6) == [("team", "reward_collapse")]
    assert heard([record(0.05)] * 6 + [record(0.01)] * 6) == []


def test_a_fall_in_the_first_updates_is_told_with_the_iteration_before_it() -> None:
    alarms = Alarms()
    run = [{**record(0.2, valid_frac=0.9), "iteration": 1}]
    run += [{**record(0.0, valid_frac=0.02), "iteration": number} for number in range(2, 10)]
    messages = {alarm["name"]: alarm["message"] for each in run for alarm in alarms.check(each)}
    assert messages["reward_collapse"].startswith("success has fallen to 4% from 20% in iteration 1: an update since")
    assert "90% had it in iteration 1: an update since broke the agent; lower the lr" in messages["invalid_actions"]


def test_a_format_that_was_never_right_gets_other_advice() -> None:
    alarms = Alarms()
    told = [alarm for _ in range(6) for alarm in alarms.check(record(valid_frac=0.1))]
    assert ["warm-start it longer" in alarm["message"] for alarm in told] == [True]


def test_skipped_updates_and_lost_rollouts_sound_for_the_team() -> None:
    assert heard([record(skipped=1), record(lost=2)]) == [("team", "not_finite"), ("team", "lost_rollouts")]


def test_alarm_sounds_again_after_it_had_gone_away() -> None:
    assert heard([record(skipped=1), record(), record(skipped=1)]) == [("team", "not_finite")] * 2
