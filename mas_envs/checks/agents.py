"""Agents: their names, and that every table of the environment is keyed by exactly the live ones."""

import re
from collections.abc import Iterator

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import actor_rng, start, turns
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import AnyEnv, Subject

__all__ = ["agent_names", "agent_tables"]

_NAME = re.compile(r"([a-z]+)_([0-9]+)")
_TABLES = ("rewards", "terminations", "truncations", "infos")


def agent_tables(subject: Subject) -> Iterator[Fault]:
    """`agents` comes from `possible_agents`, and every table holds the agents that are left, and no more."""
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        possible = list(env.possible_agents)
        start(env, subject.seed)
        for turn in turns(env, actor, actor_rng("agents", name), dead_steps=True):
            yield from _tables(env, possible, turn)


def agent_names(subject: Subject) -> Iterator[Fault]:
    """Agents are called `<role>_<n>`, numbered from 0 for each role, and are known before the first reset."""
    env = subject.fresh()
    if not env.possible_agents or len(set(env.possible_agents)) < len(env.possible_agents):
        yield Fault(
            field="possible_agents",
            found=repr(env.possible_agents),
            expected="at least one agent, and each once, before the first reset",
            remedy="set possible_agents in the constructor",
        )
    count: dict[str, int] = {}
    for agent_id in env.possible_agents:
        match = _NAME.fullmatch(agent_id) if isinstance(agent_id, str) else None
        role = match[1] if match else ""
        if match is None or int(match[2]) != count.get(role, 0):
            yield Fault(
                field="possible_agents",
                agent_id=str(agent_id),
                found=f"the name {agent_id!r}",
                expected="<role>_<n>: lower-case letters, an underscore, and numbers from 0 for each role",
                remedy=f"rename it to '{role or 'role'}_{count.get(role, 0)}'",
            )
        count[role] = count.get(role, 0) + 1
        role_of = getattr(env.unwrapped, "role_of", None)
        if match is not None and role_of is not None and role_of(agent_id) != role:
            yield Fault(
                field="role_of()",
                agent_id=agent_id,
                found=repr(role_of(agent_id)),
                expected=repr(role),
                remedy="return the name without its number",
            )


def _tables(env: AnyEnv, possible: list[str], turn: int) -> Iterator[Fault]:
    agents = list(env.agents)
    if list(env.possible_agents) != possible:
        yield Fault(
            field="possible_agents",
            turn=turn,
            found=repr(env.possible_agents),
            expected=f"{possible!r}, as before the reset",
            remedy="never change possible_agents; `agents` must be a copy of it",
        )
    if not set(agents) <= set(possible) or len(set(agents)) < len(agents):
        yield Fault(
            field="agents",
            turn=turn,
            found=repr(agents),
            expected=f"some of {possible!r}, each once",
            remedy="list only possible agents; there is no summary entry such as '__all__' in PettingZoo",
        )
    if agents and env.agent_selection not in agents:
        yield Fault(
            field="agent_selection",
            turn=turn,
            found=repr(env.agent_selection),
            expected=f"one of {agents!r}",
            remedy="select a live agent after every step",
        )
    for name in _TABLES:
        keys = set(getattr(env, name))
        if keys != set(agents):
            yield Fault(
                field=name,
                turn=turn,
                found=f"the keys {sorted(map(str, keys))}",
                expected=f"exactly the agents {sorted(map(str, agents))}",
                remedy="add no summary key such as '__all__' or '__common__', and drop agents by `_was_dead_step`",
            )
