"""Infos: the keys the contract asks for, of the right types, the same from reset on."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import actor_rng, is_over, start, turns
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import short

__all__ = ["infos_fixed", "success_said"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_reward_terms(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) and _is_number(value[key]) for key in value)


_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "valid_action": (lambda value: isinstance(value, bool), "a bool"),
    "reward_terms": (_is_reward_terms, "a dict from the name of a term to a number"),
    "task_id": (lambda value: isinstance(value, str), "a str"),
    "source": (lambda value: isinstance(value, str), "a str"),
    "turn": (lambda value: isinstance(value, int) and not isinstance(value, bool), "an int"),
    "error": (lambda value: value is None or isinstance(value, str), "a str or None"),
    "success": (lambda value: value is None or isinstance(value, bool), "a bool or None"),
}


def infos_fixed(subject: Subject) -> Iterator[Fault]:
    """Every agent's info has the same keys from reset to the end; the required ones have the right types."""
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        start(env, subject.seed)
        keys = {agent_id: set(env.infos.get(agent_id, ())) for agent_id in env.agents}
        task_ids = {agent_id: env.infos.get(agent_id, {}).get("task_id") for agent_id in env.agents}
        for turn in turns(env, actor, actor_rng("infos", name)):
            for agent_id in env.agents:
                yield from _info(agent_id, env.infos.get(agent_id, {}), keys[agent_id], turn)
                yield from _values(env, agent_id, turn, task_ids[agent_id])
                if subject.is_textual:
                    yield from _turn(env, agent_id, turn)


def success_said(subject: Subject) -> Iterator[Fault]:
    """At the end of at least one episode `success` is True or False."""
    for name, actor in actors_for(subject).items():
        for seed in range(subject.seed, subject.seed + 4):
            env = subject.fresh()
            start(env, seed)
            for _ in turns(env, actor, actor_rng("success", name, seed), max_turns=subject.longest_episode):
                pass
            if any(env.infos[agent_id].get("success") is not None for agent_id in env.agents):
                return
    yield Fault(
        field="infos['success']",
        found="None at the end of every episode",
        expected="True or False at the end of an episode in which somebody can say",
        remedy="pass success=... with the last Outcome; without it evaluation has nothing to count",
        level="warning",
    )


def _info(agent_id: str, info: Any, keys: set[str], turn: int) -> Iterator[Fault]:
    for key in sorted(set(info) ^ keys):
        yield Fault(
            field=f"infos[{key!r}]",
            agent_id=agent_id,
            turn=turn,
            found="a key that was not there at reset" if key in info else "a key that was there at reset, gone",
            expected=f"the keys of reset in every step: {', '.join(sorted(keys))}",
            remedy="put the key there at reset, with None where there is nothing to say yet",
        )
    for key, (fits, wanted) in _KEYS.items():
        if key not in info and key not in keys:
            yield Fault(
                field=f"infos[{key!r}]",
                agent_id=agent_id,
                turn=turn,
                found="no such key",
                expected=wanted,
                remedy="write it for every live agent, from reset on",
            )
        elif key in info and not fits(info[key]):
            yield Fault(
                field=f"infos[{key!r}]",
                agent_id=agent_id,
                turn=turn,
                found=f"{short(repr(info[key]), 80)} of type {type(info[key]).__name__}",
                expected=wanted,
                remedy="convert it where the info is written",
            )


def _values(env: AnyEnv, agent_id: str, turn: int, task_id: Any) -> Iterator[Fault]:
    info = env.infos.get(agent_id, {})
    if info.get("success") is not None and not is_over(env):
        yield Fault(
            field="infos['success']",
            agent_id=agent_id,
            turn=turn,
            found=repr(info["success"]),
            expected="None while the episode runs",
            remedy="write it only when the episode ends",
        )
    if info.get("task_id") != task_id:
        yield Fault(
            field="infos['task_id']",
            agent_id=agent_id,
            turn=turn,
            found=f"{info.get('task_id')!r} after {task_id!r}",
            expected="one task for the whole episode",
            remedy="draw the task in reset only",
        )


def _turn(env: AnyEnv, agent_id: str, turn: int) -> Iterator[Fault]:
    said = env.infos.get(agent_id, {}).get("turn", turn)
    if isinstance(said, int) and said != turn:
        yield Fault(
            field="infos['turn']",
            agent_id=agent_id,
            turn=turn,
            found=repr(said),
            expected=f"{turn}, the turns that all agents have taken so far",
            remedy="count every action, also invalid ones, and write it into every agent's info",
        )
