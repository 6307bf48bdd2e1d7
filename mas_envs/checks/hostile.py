"""Hostile actions: any text is data, and never an error or a hang; anything else is refused and changes nothing."""

import math
from collections.abc import Iterator
from typing import Any

from mas_envs.checks.actors import Actor, actors_for, texts_in, with_content
from mas_envs.checks.episodes import (
    SHORT_EPISODE,
    Difference,
    Frame,
    actor_rng,
    first_difference,
    play,
    replayed,
    resume,
    snapshot,
    start,
    turns,
)
from mas_envs.checks.findings import Fault
from mas_envs.checks.forging import CHAT_MARKERS
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.checks.time_limit import TimeUp, time_limit
from mas_envs.error_texts import describe_error
from mas_envs.errors import MasEnvsError

__all__ = ["any_text_taken", "wrong_types_refused"]

_PLANES = "".join(chr((plane << 16) + offset) for plane in range(17) for offset in (0x41, 0x263A, 0xFFFD))
HOSTILE_TEXTS = {
    "an empty text": "",
    "white space": " \t\r\n\u2028\u00a0 ",
    "200,000 characters": "word " * 40_000,
    "characters of every Unicode plane": _PLANES,
    "lone surrogates": "a\ud800b \udfff\ud83d",
    "control characters": "a\x00b\x07\x1b[31m\x7f\ufeff\u202e\u200b",
    "unbalanced tags": "</think></answer><verify><search></solver_0></problem><information>",
    "20,000 open brackets": "{[(<" * 5_000,
    "5,000 open boxes and thoughts": "\\boxed{" * 5_000 + "<think>" * 5_000,
    "format fields": "{0} {} {name!r:>{1}} %s %(x)d $x ${y} {",
    "5,000 digits": "9" * 5_000,
    "digits of other scripts": "\u00b2\u00b3 \u0663\u0664 \u2460 \u4e94",
    "a number that is none": "nan",
    "a number without end": "-1e999",
    "a division by zero": "1/0",
    "a tower of powers": "9**9**9**9",
    "chat turns": " ".join(CHAT_MARKERS),
}
"""Name -> text that a model may write by accident, or on purpose."""

_MOST_TURNS = 3
"""Turns of each agent at which it is tried: the first, one in the middle, and the last."""
_LONG = 10_000
_ROUNDS_AFTER = 2
"""Turns of every agent that are played after it."""


def any_text_taken(subject: Subject) -> Iterator[Fault]:
    """Every text is taken from every agent at every turn, bare and in its usual form, without an error or a hang."""
    subject.require_text()
    for actor, frames, depth in _occasions(subject):
        said = frames[depth].action
        is_first = all(frame.agent_id != frames[depth].agent_id for frame in frames[:depth])
        for name, text in HOSTILE_TEXTS.items():
            if len(text) > _LONG and not is_first:
                continue  # once is enough for what takes a second
            inside = with_content(said, text)
            for where, action in ((name, text), (f"{name} in the usual form", inside)):
                if action is None:
                    continue
                env = subject.fresh()
                start(env, subject.seed)
                for _ in turns(env, replayed(frames[:depth]), actor_rng("reach"), max_turns=depth):
                    pass
                yield from _attacked(subject, env, actor, where, action)


def _occasions(subject: Subject) -> Iterator[tuple[Actor, list[Frame], int]]:
    """Episodes and the turns in them to attack, each agent's n-th turn once; experts first, as they get furthest."""
    tried: set[tuple[str, int]] = set()
    for actor in reversed(actors_for(subject).values()):
        frames = [
            frame for frame in play(subject.fresh(), actor, subject.seed, limit_s=subject.step_limit_s) if frame.live
        ]
        for agent_id in subject.agent_ids:
            own = [depth for depth, frame in enumerate(frames) if frame.agent_id == agent_id]
            chosen = {own[index * (len(own) - 1) // (_MOST_TURNS - 1)] for index in range(_MOST_TURNS)} if own else ()
            for depth in sorted(chosen):
                if (agent_id, own.index(depth)) not in tried:
                    tried.add((agent_id, own.index(depth)))
                    yield actor, frames, depth


def wrong_types_refused(subject: Subject) -> Iterator[Fault]:
    """An action that is no text raises a TypeError, and the episode stays as it was."""
    subject.require_text()
    for agent_id in subject.agent_ids:
        env = subject.fresh()
        actor = _reach(subject, env, agent_id)
        if actor is None:
            continue
        before, turn = snapshot(env), _turns_of(env)
        for action in (None, 5, 1.5, True, b"bytes", ["text"], {"text": "x"}):
            refusal: Exception | None = None
            try:
                env.step(action)
            except Exception as error:  # noqa: BLE001  # which error it is, is what this check looks at
                refusal = error
            if not isinstance(refusal, TypeError | MasEnvsError):
                yield Fault(
                    field=f"step({action!r})",
                    agent_id=agent_id,
                    turn=turn,
                    found="no error" if refusal is None else describe_error(refusal),
                    expected="a TypeError or MasEnvsError: only a dead agent may pass None, and only text is an action",
                    remedy="refuse what is not a str before anything else is done, as ConversationEnv.step does",
                )
                break
            if snapshot(env) != before:
                yield Fault(
                    field=f"step({action!r})",
                    agent_id=agent_id,
                    turn=turn,
                    found="another state of the episode than before the refused action",
                    expected="the episode as it was",
                    remedy="check the action before the state is touched",
                )
                break
        else:
            yield from _goes_on(subject, env, agent_id, actor)


def _goes_on(subject: Subject, env: AnyEnv, agent_id: str, actor: Actor) -> Iterator[Fault]:
    """After refused actions the episode plays on like one that never saw any."""
    untouched = subject.fresh()
    _reach(subject, untouched, agent_id)
    plays = (resume(one, actor, actor_rng("on"), limit_s=subject.step_limit_s) for one in (untouched, env))
    difference: Difference | None = first_difference(*map(list, plays))
    if difference is not None:
        yield Fault(
            field=difference.field,
            agent_id=agent_id,
            turn=difference.turn,
            found=f"{difference.second} where an episode without the refused actions has {difference.first}",
            expected="an episode that refused actions do not change",
            remedy="check the action before the state or the generator is touched",
        )


def _reach(subject: Subject, env: AnyEnv, agent_id: str) -> Actor | None:
    """Plays until it is the agent's turn; returns the actor that got there, None when none does."""
    for name, actor in actors_for(subject).items():
        start(env, subject.seed)
        for _ in turns(env, actor, actor_rng("reach", name), max_turns=SHORT_EPISODE):
            if env.agents and env.agent_selection == agent_id and not _is_dead(env, agent_id):
                return actor
    return None


def _attacked(subject: Subject, env: AnyEnv, actor: Actor, name: str, text: str) -> Iterator[Fault]:
    agent_id, turn = env.agent_selection, _turns_of(env)
    is_legal = env.action_space(agent_id).contains(text)
    try:
        with time_limit(subject.step_limit_s):
            env.step(text)
        faults = list(_left_usable(env, agent_id, turn, name, is_legal))
        aftermath = _ROUNDS_AFTER * len(subject.agent_ids)
        for _ in turns(env, actor, actor_rng("after"), max_turns=aftermath, limit_s=subject.step_limit_s):
            with time_limit(subject.step_limit_s):
                for viewer in env.possible_agents:
                    env.observe(viewer)
    except (Exception, TimeUp) as error:  # noqa: BLE001  # third-party code may raise anything
        yield Fault(
            field=f"step() with {name}",
            agent_id=agent_id,
            turn=turn,
            found=describe_error(error),
            expected=f"a step, and an episode that goes on, within {subject.step_limit_s:g} s for each call",
            remedy="treat every text as data: parse it with mas_envs.actions, and put it into prompts by concatenation "
            "or as an argument of format(), never into the format string",
        )
        return
    yield from faults


def _left_usable(env: AnyEnv, agent_id: str, turn: int, name: str, is_legal: bool) -> Iterator[Fault]:
    for viewer in env.possible_agents:
        observation = env.observe(viewer)
        problem = None
        if not env.observation_space(viewer).contains(observation):
            problem = "an observation that its space does not contain"
        elif any(_is_undecodable(text) for _, text in texts_in(observation)):
            problem = "lone surrogates in the observation, which no tokenizer can encode"
        if problem is not None:
            yield Fault(
                field=f"observation after {name}",
                agent_id=viewer,
                turn=turn,
                found=f"{problem}, after {agent_id}'s step",
                expected="an observation that is valid Unicode and in its space",
                remedy="replace what cannot be decoded and cut what is too long before it is stored",
            )
    for entry in getattr(env.unwrapped, "transcript", None) or ():
        if _is_undecodable(str(getattr(entry, "text", ""))):
            yield Fault(
                field=f"transcript after {name}",
                agent_id=agent_id,
                turn=turn,
                found="lone surrogates",
                expected="text that can be written to a file",
                remedy="replace what cannot be decoded before it is stored",
            )
            break
    for payee, amount in env.rewards.items():
        if not math.isfinite(float(amount)):
            yield Fault(
                field=f"rewards[{payee!r}] after {name}",
                agent_id=payee,
                turn=turn,
                found=repr(amount),
                expected="a finite number",
                remedy="look for a division by the length of the text or by the number of its words",
            )
    info: dict[str, Any] = env.infos.get(agent_id, {})
    if not is_legal and info.get("valid_action") is True:
        yield Fault(
            field="infos['valid_action']",
            agent_id=agent_id,
            turn=turn + 1,
            found=f"True for {name}, which the action space does not contain",
            expected="False: the action was cut or replaced",
            remedy="flag it; ConversationEnv does this for texts over max_action_chars",
        )


def _is_undecodable(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _is_dead(env: AnyEnv, agent_id: str) -> bool:
    return bool(env.terminations[agent_id] or env.truncations[agent_id])


def _turns_of(env: AnyEnv) -> int:
    transcript = getattr(env.unwrapped, "transcript", None)
    return len(transcript) if transcript is not None else 0
