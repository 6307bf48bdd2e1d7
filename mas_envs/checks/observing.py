"""Looking changes nothing: `observe` is pure, and what was handed out stays as it was."""

import copy
from collections.abc import Iterator
from typing import Any

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import actor_rng, canonical, first_difference, play, replayed, snapshot, start, turns
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import Subject
from mas_envs.error_texts import short

__all__ = ["handed_out_stays", "observe_pure"]


def observe_pure(subject: Subject) -> Iterator[Fault]:
    """Two looks show the same, and an episode in which everybody looks goes like one in which nobody does."""
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        start(env, subject.seed)
        for turn in turns(env, actor, actor_rng("observe", name)):
            for agent_id in env.possible_agents:
                first, second = (canonical(env.observe(agent_id)) for _ in range(2))
                if first != second:
                    yield Fault(
                        field="observation",
                        agent_id=agent_id,
                        turn=turn,
                        found=f"{short(repr(first), 80)} and then {short(repr(second), 80)}",
                        expected="the same at two calls of observe() in a row",
                        remedy="draw and count nothing in observe() and prompt(); do it in receive() or step()",
                    )
                    return
        watched = play(subject.fresh(), actor, subject.seed, limit_s=subject.step_limit_s)
        blind = subject.fresh()
        unseen = play(blind, replayed(watched), subject.seed, observe=False, limit_s=subject.step_limit_s)
        visible = [
            type(frame)(
                frame.turn,
                frame.agent_id,
                {key: value for key, value in frame.fields.items() if not key.startswith("observation of")},
                frame.action,
                frame.live,
            )
            for frame in watched
        ]
        if difference := first_difference(visible, unseen):
            yield Fault(
                field=difference.field,
                agent_id=difference.agent_id or None,
                turn=difference.turn,
                found=f"{difference.first} when agents were observed and {difference.second} when they were not",
                expected="an episode that does not depend on who looked",
                remedy="let observe() and prompt() read the state only; they may be called at any time, or never",
            )


def handed_out_stays(subject: Subject) -> Iterator[Fault]:
    """Observations and infos handed out earlier do not change later, and changing them does not change the episode."""
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        start(env, subject.seed)
        kept: list[tuple[int, str, str, Any, Any]] = []
        for turn in turns(env, actor, actor_rng("kept", name)):
            for agent_id in env.possible_agents:
                seen = env.observe(agent_id)
                kept.append((turn, agent_id, "observation", seen, copy.deepcopy(seen)))
            for agent_id in env.agents:
                info = env.infos[agent_id]
                kept.append((turn, agent_id, "infos", info, copy.deepcopy(info)))
        for turn, agent_id, field, now, then in kept:
            if canonical(now) != canonical(then):
                yield Fault(
                    field=field,
                    agent_id=agent_id,
                    turn=turn,
                    found=f"{short(repr(then), 80)} that later became {short(repr(now), 80)}",
                    expected="what was handed out to stay as it was: rollouts keep it",
                    remedy="build a new object for every observation and info; never append to one that was returned",
                )
                return
        yield from _spoiled(subject, name)


def _spoiled(subject: Subject, actor_name: str) -> Iterator[Fault]:
    """Spoil every observation and transcript that is handed out, and look whether the environment minds."""
    env = subject.fresh()
    start(env, subject.seed)
    actor = actors_for(subject)[actor_name]
    for turn in turns(env, actor, actor_rng("spoiled", actor_name)):
        before = snapshot(env)
        for agent_id in env.possible_agents:
            _spoil(env.observe(agent_id))
        _spoil(getattr(env.unwrapped, "transcript", None))
        after = snapshot(env)
        for field, value in before.items():
            if after[field] != value:
                yield Fault(
                    field=field,
                    turn=turn,
                    found=f"{short(repr(after[field]), 80)} after the caller had changed what it was handed",
                    expected=f"{short(repr(value), 80)}, as before",
                    remedy="hand out new objects, or immutable ones: a tuple of new dicts, list(self._turns)",
                )
                return


def _spoil(value: Any) -> None:
    """Change everything in a nested value that can be changed."""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            _spoil(part)
            if isinstance(part, str):
                value[key] = "spoiled"
        value["spoiled"] = True
    elif isinstance(value, list):
        for part in value:
            _spoil(part)
        value.append("spoiled")
    elif isinstance(value, tuple):
        for part in value:
            _spoil(part)
