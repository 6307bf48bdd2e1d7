"""Agents, roles and policies that settings name, looked up before anything starts."""

import difflib
from collections.abc import Collection, Iterable, Mapping

from trainers.batch import OWN_TURN_TERMS
from trainers.config import Settings
from trainers.overrides import SettingsError
from trainers.reward_terms import REWARD_TERMS

__all__ = ["check_team_names", "weighted_terms"]


def check_team_names(settings: Settings, role_of: Mapping[str, str]) -> None:
    """Refuse names of agents that the environment does not have.

    Args:
        settings: All settings.
        role_of: Agent id -> role, as the environment has them.

    Raises:
        SettingsError: Names the setting, the name and the nearest known one.
    """
    roles = list(dict.fromkeys(role_of.values()))
    agents = [*roles, *role_of]
    warm = settings.warm_start
    for section, names in (("behaviour", warm.behaviour), ("spoiled", warm.spoiled)) if warm else ():
        _refuse_unknown(f"warm_start.{section}", names, roles, "a role")
    own = [name for name, weight in settings.algorithm.reward_weights.items() if isinstance(weight, Mapping)]
    _refuse_unknown("algorithm.reward_weights", own, agents, "a role or an agent")
    _refuse_unknown("prices", settings.prices, [*agents, *settings.policies], "a role, an agent or a policy")


def weighted_terms(settings: Settings) -> list[str]:
    """Reward terms of the environment that have a weight; whether they exist shows only when somebody earns them."""
    names: dict[str, None] = {}
    for name, weight in settings.algorithm.reward_weights.items():
        names |= dict.fromkeys(weight if isinstance(weight, Mapping) else [name])
    return [term for term in names if term not in OWN_TURN_TERMS and term not in REWARD_TERMS]


def _refuse_unknown(setting: str, names: Iterable[str], known: Collection[str], kind: str) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "mend the name, or remove it"
            raise SettingsError(f"{setting}.{name}: expected {kind}, one of {', '.join(known)}; {hint}")
