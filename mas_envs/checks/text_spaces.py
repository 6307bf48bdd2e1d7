"""Spaces: fixed objects that contain what is shown, sample cheaply, and survive a pickle."""

import copy
import pickle
import statistics
import time
from collections.abc import Iterator
from typing import Any

from gymnasium import spaces

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import actor_rng, start, turns
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import short

__all__ = ["spaces_hold"]

_SAMPLE_LIMIT_S = 0.05
_KINDS = ("observation_space", "action_space")


def spaces_hold(subject: Subject) -> Iterator[Fault]:
    """Each space is one fixed object, and every agent's observation is in its space at every step."""
    env = subject.fresh()
    for agent_id in env.possible_agents:
        for kind in _KINDS:
            yield from _space(env, agent_id, kind)
    for name, actor in actors_for(subject).items():
        start(env, subject.seed)
        for turn in turns(env, actor, actor_rng("spaces", name)):
            for agent_id in env.possible_agents:
                yield from _contained(env, agent_id, turn)


def _space(env: AnyEnv, agent_id: str, kind: str) -> Iterator[Fault]:
    space = getattr(env, kind)(agent_id)
    field = f"{kind}({agent_id!r})"
    if not isinstance(space, spaces.Space):
        yield Fault(
            field=field,
            agent_id=agent_id,
            found=f"a {type(space).__name__}",
            expected="a gymnasium.spaces.Space",
            remedy="use mas_envs.spaces.UnicodeText for actions and messages_space for observations",
        )
        return
    if getattr(env, kind)(agent_id) is not space:
        yield Fault(
            field=field,
            agent_id=agent_id,
            found="another object at each call",
            expected="the same object at each call, so that seeding it has an effect",
            remedy="make the spaces in the constructor and return them from a dict",
        )
    if pickle.loads(pickle.dumps(space)) != space:  # safe: made on this line
        yield Fault(
            field=field,
            agent_id=agent_id,
            found="a copy through pickle that is not equal to it",
            expected="an equal copy: runners send spaces to other processes",
            remedy="write __eq__ that compares what the space permits",
        )
    durations = _sample_durations(space)
    if statistics.median(durations) > _SAMPLE_LIMIT_S:
        yield Fault(
            field=f"{field}.sample()",
            agent_id=agent_id,
            found=f"{statistics.median(durations):.2f} s for a sample",
            expected=f"at most {_SAMPLE_LIMIT_S} s",
            remedy="sample short texts whatever the longest permitted one is, as mas_envs.spaces.UnicodeText does",
        )
    elif kind == "action_space" and not space.contains(copy.deepcopy(space).sample()):
        yield Fault(
            field=f"{field}.sample()",
            agent_id=agent_id,
            found="a sample that the space does not contain",
            expected="samples that are legal actions",
            remedy="let `sample` and `contains` follow the same rule",
        )


def _sample_durations(space: spaces.Space[Any]) -> list[float]:
    sampler = copy.deepcopy(space)
    durations = []
    for _ in range(3):
        began = time.perf_counter()
        sampler.sample()
        durations.append(time.perf_counter() - began)
    return durations


def _contained(env: AnyEnv, agent_id: str, turn: int) -> Iterator[Fault]:
    observation = env.observe(agent_id)
    if not env.observation_space(agent_id).contains(observation):
        yield Fault(
            field="observation",
            agent_id=agent_id,
            turn=turn,
            found=f"{short(repr(observation), 160)}, which its space does not contain",
            expected=f"something in {short(repr(env.observation_space(agent_id)), 160)}, for every agent at every step",
            remedy="return {'messages': (...)} with a tuple of {'role': ..., 'content': ...}: a list, a missing key, "
            "an extra key or an empty role is not contained",
        )
