"""Names of agents, roles, policies and reward terms in settings: a misspelt one is found before or while it matters."""

from typing import Any

import pytest

from tests.trainers.tiny_team import tiny_settings
from trainers.alarms import Alarms
from trainers.config import SettingsError
from trainers.team_names import check_team_names, weighted_terms

ROLE_OF = {"solver_0": "solver", "verifier_0": "verifier"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"algorithm": {"reward_weights": {"verifer": {"verdict": 0.5}}}},
            r"algorithm.reward_weights.verifer: expected a role or an agent, .*; did you mean 'verifier'\?",
        ),
        ({"prices": {"sovler": 1.0}}, r"prices.sovler: expected a role, an agent or a policy, .*'solver'\?"),
        (
            {"warm_start": {"spoiled": {"solver_0": {"accuracy": 0.5}}}},
            r"warm_start.spoiled.solver_0: expected a role, one of solver, verifier; did you mean 'solver'\?",
        ),
        ({"warm_start": {"behaviour": {"judge": {}}}}, r"warm_start.behaviour.judge: .*; mend the name, or remove it"),
    ],
)
def test_misspelt_name_is_refused_with_the_nearest(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_team_names(tiny_settings("no-such-folder", **settings), ROLE_OF)


def test_known_names_pass() -> None:
    settings = tiny_settings(
        "no-such-folder",
        algorithm={"reward_weights": {"verifier_0": {"verdict": 2.0}, "invalid": 0.5}},
        prices={"solver": 1.0},
    )
    check_team_names(settings, ROLE_OF)
    assert weighted_terms(settings) == ["verdict"]


def test_weight_of_a_term_that_nobody_earns_is_an_alarm_until_somebody_does() -> None:
    alarms = Alarms(["verdit"])
    record = {"success": 0.5, "lost_rollouts": 0, "num_rollouts": 1, "policies": {}, "agents": {}}
    (alarm,) = alarms.check({**record, "reward_terms": ["correct", "verdict"]})
    assert alarm["name"] == "unearned_term"
    assert "weighs verdit, which no turn has earned so far; the environment pays correct, verdict" in alarm["message"]
    assert alarms.check({**record, "reward_terms": ["verdit"]}) == []
