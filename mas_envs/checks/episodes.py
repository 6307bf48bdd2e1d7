"""Playing episodes and writing down all that can be seen of them, so that two can be compared."""

import copy
import dataclasses
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mas_envs.checks.actors import Actor, babble
from mas_envs.checks.subject import AnyEnv
from mas_envs.checks.time_limit import time_limit
from mas_envs.error_texts import short

__all__ = [
    "SHORT_EPISODE",
    "Difference",
    "Frame",
    "actor_rng",
    "advance",
    "canonical",
    "first_difference",
    "is_over",
    "play",
    "replayed",
    "resume",
    "snapshot",
    "start",
    "turns",
]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MOST_DEAD_STEPS = 2  # for each agent; a sound environment takes one
SHORT_EPISODE = 24
"""Turns after which most checks have seen enough of an episode."""


@dataclass(frozen=True)
class Frame:
    """What could be seen just before one step, in plain JSON values, and the action that was taken."""

    turn: int
    """Actions taken before; dead steps do not count."""
    agent_id: str
    """The selected agent."""
    fields: Mapping[str, Any]
    """Name of a field -> its value; observations under `observation of <agent>`."""
    action: Any
    """What the agent did; None for a dead step, and where nothing was done any more."""
    live: bool = True
    """False for a dead step."""


@dataclass(frozen=True)
class Difference:
    """The first point at which two episodes part."""

    turn: int
    agent_id: str
    field: str
    first: str
    second: str


def canonical(value: Any) -> Any:
    """The value in plain JSON types, equal for equal values in every process."""
    if isinstance(value, np.generic | np.ndarray):
        return canonical(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): canonical(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [canonical(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((canonical(part) for part in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: canonical(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _ADDRESS.sub("", repr(value))


def is_over(env: AnyEnv) -> bool:
    """Whether no agent is live: only dead steps are left, or nothing at all."""
    return all(env.terminations[agent_id] or env.truncations[agent_id] for agent_id in env.agents)


def snapshot(env: AnyEnv, *, observe: bool = True) -> dict[str, Any]:
    """Everything that can be seen of an environment now, as plain values that share nothing with it."""
    fields: dict[str, Any] = {
        "agents": list(env.agents),
        "agent_selection": env.agent_selection if env.agents else None,
        "rewards": canonical(env.rewards),
        "terminations": canonical(env.terminations),
        "truncations": canonical(env.truncations),
        "infos": canonical(env.infos),
        "transcript": canonical(getattr(env.unwrapped, "transcript", None)),
    }
    if env.agents:
        fields["reward of last()"] = canonical(env.last(observe=False)[1])
    if observe:
        for agent_id in env.possible_agents:
            fields[f"observation of {agent_id}"] = canonical(env.observe(agent_id))
    return copy.deepcopy(fields)


def start(env: AnyEnv, seed: int | None, options: dict[str, Any] | None = None, *, limit_s: float = 60.0) -> None:
    """Reset within a time limit."""
    with time_limit(limit_s):
        env.reset(seed=seed, options=options)


def actor_rng(*parts: object) -> random.Random:
    """A generator for actions that is the same in every process."""
    return random.Random("/".join(map(str, parts)))


def resume(
    env: AnyEnv,
    actor: Actor,
    rng: random.Random,
    *,
    first_turn: int = 0,
    max_turns: int = SHORT_EPISODE,
    observe: bool = True,
    limit_s: float = 60.0,
) -> Iterator[Frame]:
    """Play on from where the environment stands; yields a frame before each step, and a last one for the end.

    Args:
        env: An environment in an episode.
        actor: What the agents do.
        rng: Generator for their actions.
        first_turn: Live turns taken before.
        max_turns: Live turns after which the play stops, the episode over or not.
        observe: Whether every agent is observed before each step; if not, no agent ever is, and actors see None.
        limit_s: Longest time that one step may take.
    """
    turn = first_turn
    dead_steps_left = _MOST_DEAD_STEPS * len(env.possible_agents)
    while env.agents and dead_steps_left and (turn < max_turns or is_over(env)):
        agent_id = env.agent_selection
        fields = snapshot(env, observe=observe)
        _, _, terminated, truncated, _ = env.last(observe=False)
        live = not (terminated or truncated)
        action = actor(env, agent_id, env.observe(agent_id) if observe else None, rng) if live else None
        yield Frame(turn, agent_id, fields, action, live)
        with time_limit(limit_s):
            env.step(action)
        turn += live
        dead_steps_left -= not live
    yield Frame(turn, env.agent_selection if env.agents else "", snapshot(env, observe=observe), None, False)


def turns(
    env: AnyEnv,
    actor: Actor,
    rng: random.Random,
    *,
    max_turns: int = SHORT_EPISODE,
    dead_steps: bool = False,
    limit_s: float = 60.0,
) -> Iterator[int]:
    """Play on; yields the number of turns taken before each step and after the last, for a look at the environment.

    Args:
        env: An environment just after its reset.
        actor: What the agents do.
        rng: Generator for their actions.
        max_turns: Live turns after which the play stops.
        dead_steps: Whether the dead steps after the end are taken too.
        limit_s: Longest time that one step may take.
    """
    turn = 0
    dead_steps_left = _MOST_DEAD_STEPS * len(env.possible_agents)
    while True:
        yield turn
        if not env.agents or not dead_steps_left or (not dead_steps if is_over(env) else turn >= max_turns):
            return
        agent_id = env.agent_selection
        live = not (env.terminations[agent_id] or env.truncations[agent_id])
        action = actor(env, agent_id, env.observe(agent_id), rng) if live else None
        with time_limit(limit_s):
            env.step(action)
        turn += live
        dead_steps_left -= not live


def play(
    env: AnyEnv,
    actor: Actor,
    seed: int,
    *,
    options: dict[str, Any] | None = None,
    max_turns: int = SHORT_EPISODE,
    observe: bool = True,
    limit_s: float = 60.0,
) -> list[Frame]:
    """One episode from a reset with `seed`; the same seed gives the same actions for the same observations."""
    start(env, seed, options, limit_s=limit_s)
    rng = actor_rng("episode", seed)
    return list(resume(env, actor, rng, max_turns=max_turns, observe=observe, limit_s=limit_s))


def advance(env: AnyEnv, frames: Sequence[Frame], *, limit_s: float = 60.0) -> None:
    """Take the steps of those frames."""
    for frame in frames:
        with time_limit(limit_s):
            env.step(frame.action)


def replayed(frames: Sequence[Frame]) -> Actor:
    """An actor that does what was done in those frames, whatever it is shown, and babbles after them."""
    actions = iter([frame.action for frame in frames if frame.live])

    def act(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
        action = next(actions, None)
        return babble(env, agent_id, observation, rng) if action is None else action

    return act


def first_difference(first: Sequence[Frame], second: Sequence[Frame]) -> Difference | None:
    """Where two episodes part; None when they are the same."""
    for one, other in zip(first, second, strict=False):
        fields = {"agent": one.agent_id, **one.fields, "action": one.action}
        others = {"agent": other.agent_id, **other.fields, "action": other.action}
        for name in fields.keys() | others.keys() if fields.keys() != others.keys() else fields:
            left, right = fields.get(name), others.get(name)
            if left != right:
                return Difference(one.turn, one.agent_id, name, *_excerpts(left, right))
    if len(first) != len(second):
        last = min(len(first), len(second))
        return Difference(last, "", "length of the episode", f"{len(first)} steps", f"{len(second)} steps")
    return None


def _excerpts(left: Any, right: Any) -> tuple[str, str]:
    """The two values cut to the place where they differ."""
    one, other = repr(left), repr(right)
    at = next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    begin = max(0, at - 30)
    lead = "..." if begin else ""
    return lead + short(one[begin:], 100), lead + short(other[begin:], 100)
