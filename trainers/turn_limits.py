"""How often agents can be called in an episode, for environments whose rules say so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TurnLimits", "turn_limits"]


@dataclass(frozen=True)
class TurnLimits:
    """Most turns of an episode."""

    by_role: Mapping[str, int]
    """Role -> most turns."""
    total: int
    """Most turns of all agents together; less than the sum where one speaks instead of another."""


def turn_limits(env_id: str, kwargs: Mapping[str, Any]) -> TurnLimits | None:
    """Most turns of an episode; None where the rules are not known here.

    >>> turn_limits("MathLoop-v0", {"max_loops": 3})
    TurnLimits(by_role={'solver': 3, 'verifier': 2}, total=5)

    Args:
        env_id: Registered id.
        kwargs: Arguments of the environment.
    """
    rules = _RULES.get(env_id)
    if rules is None:
        return None
    limits = rules(kwargs)
    most = kwargs.get("max_turns")
    return limits if most is None else TurnLimits(limits.by_role, min(limits.total, most))


def _loop(kwargs: Mapping[str, Any]) -> TurnLimits:
    loops = kwargs.get("max_loops", 2)
    return TurnLimits({"solver": loops, "verifier": loops - 1}, 2 * loops - 1)


def _refine(kwargs: Mapping[str, Any]) -> TurnLimits:
    again = kwargs.get("max_loops", 2) - 1
    return TurnLimits({"solver": 1, "verifier": again, "refiner": again}, 1 + 2 * again)


def _search(kwargs: Mapping[str, Any]) -> TurnLimits:
    rounds = kwargs.get("max_rounds", 4)
    return TurnLimits({"verifier": rounds, "searcher": rounds - 1, "answerer": rounds}, 2 * rounds)


_RULES: Mapping[str, Callable[[Mapping[str, Any]], TurnLimits]] = {
    "MathLoop-v0": _loop,
    "MathRefine-v0": _refine,
    "MathSolo-v0": lambda _: TurnLimits({"solver": 1}, 1),
    "HierarchicalSearch-v0": _search,
    "SearchSolo-v0": lambda kwargs: TurnLimits({"searcher": kwargs.get("max_rounds", 4)}, kwargs.get("max_rounds", 4)),
}
