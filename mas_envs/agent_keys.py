"""Which key of a mapping is meant for which agent: an agent id, a role, or a pattern."""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pettingzoo import AECEnv

__all__ = ["KeyMatch", "match_keys", "roles_of"]


@dataclass(frozen=True)
class KeyMatch:
    """How keys fit agents."""

    key_of: Mapping[str, str]
    """Agent id -> the key meant for it; agents that no key fits are absent."""
    unknown: tuple[str, ...]
    """Keys that fit neither an agent nor a role."""


def match_keys(keys: Iterable[str], role_of: Mapping[str, str]) -> KeyMatch:
    """The most special key for each agent: its id, else its role, else the first pattern that fits id or role.

    >>> match_keys(["*", "solver", "solver_1"], {"solver_0": "solver", "solver_1": "solver", "judge_0": "judge"}).key_of
    {'solver_0': 'solver', 'solver_1': 'solver_1', 'judge_0': '*'}

    Args:
        keys: Agent ids, roles, and patterns such as `solver_*`, in falling order of weight among patterns.
        role_of: Agent id -> role.
    """
    keys = list(keys)
    key_of: dict[str, str] = {}
    for agent_id, role in role_of.items():
        names = (agent_id, role)
        exact = [name for name in names if name in keys]
        patterns = [key for key in keys if any(fnmatch.fnmatchcase(name, key) for name in names)]
        if candidates := exact or patterns:
            key_of[agent_id] = candidates[0]
    known = [*role_of, *role_of.values()]
    unknown = tuple(key for key in keys if not any(fnmatch.fnmatchcase(name, key) for name in known))
    return KeyMatch(key_of, unknown)


def roles_of(env: AECEnv[Any, Any, Any]) -> dict[str, str]:
    """Agent id -> role; where the environment names no roles, the part of the id before the number."""
    role_of = getattr(env.unwrapped, "role_of", None)
    return {
        agent_id: agent_id.rpartition("_")[0] or agent_id if role_of is None else role_of(agent_id)
        for agent_id in env.possible_agents
    }
