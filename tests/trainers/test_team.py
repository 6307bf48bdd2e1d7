"""Which policy speaks for which agent."""

import pytest

from trainers.config import SettingsError
from trainers.team import assign_agents

ROLES = {"solver_0": "solver", "solver_1": "solver", "verifier_0": "verifier"}


def test_agent_goes_before_role_and_role_before_pattern() -> None:
    assert assign_agents({"*": "rest", "solver": "big", "solver_1": "small"}, ROLES) == {
        "solver_0": "big",
        "solver_1": "small",
        "verifier_0": "rest",
    }


def test_key_that_fits_nobody_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"agents\.judge is neither a role nor an agent of the environment; it has the"
    ):
        assign_agents({"*": "rest", "judge": "big"}, ROLES)


def test_agent_without_a_policy_is_named() -> None:
    with pytest.raises(SettingsError, match=r"the agent 'verifier_0' has no policy; add 'agents\.verifier: <policy>'"):
        assign_agents({"solver": "big"}, ROLES)
