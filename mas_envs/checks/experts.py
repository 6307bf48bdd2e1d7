"""Scripted experts: a text for every turn, decided by the generator they are given, without a trace."""

import random
from collections.abc import Iterator

from mas_envs.checks.actors import echo_form
from mas_envs.checks.episodes import actor_rng, is_over, snapshot, start, turns
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import describe_error, short
from mas_envs.errors import MasEnvsError

__all__ = ["experts_pure"]

_NUM_ASKED = 12
"""Times an expert is asked with equal generators: one with dice of its own often agrees with itself once."""


def experts_pure(subject: Subject) -> Iterator[Fault]:
    """`scripted_action` returns text, the same for the same generator, and leaves the episode as it is."""
    subject.require_text()
    env = subject.fresh()
    if not hasattr(env.unwrapped, "scripted_action"):
        raise SkipCheckError("the environment has no scripted_action")
    start(env, subject.seed)
    num_calls = 0
    for turn in turns(env, echo_form, actor_rng("experts"), limit_s=subject.step_limit_s):
        if is_over(env):
            break
        try:
            yield from _asked(env, turn)
            num_calls += 1
        except MasEnvsError:
            continue  # an environment may have experts for some roles only
    if not num_calls:
        raise SkipCheckError("the environment has no scripted expert")


def _asked(env: AnyEnv, turn: int) -> Iterator[Fault]:
    agent_id = env.agent_selection
    before = snapshot(env)
    is_steady = snapshot(env) == before  # or else looking changes it, which is the finding of another check
    try:
        first, *others = (env.unwrapped.scripted_action(agent_id, random.Random(turn)) for _ in range(_NUM_ASKED))
    except MasEnvsError:
        raise
    except Exception as error:  # noqa: BLE001  # third-party code may raise anything
        yield Fault(
            field="scripted_action()",
            agent_id=agent_id,
            turn=turn,
            found=describe_error(error),
            expected="a text, whatever was said before; or a MasEnvsError where there is no expert for the role",
            remedy="let the expert cope with team-mates that say anything",
        )
        return
    other = next((text for text in others if text != first), first)
    if not isinstance(first, str) or first != other:
        yield Fault(
            field="scripted_action()",
            agent_id=agent_id,
            turn=turn,
            found=f"{short(repr(first), 60)} and {short(repr(other), 60)} with equal generators",
            expected="the same text each time",
            remedy="draw from the generator that is passed, and from no other",
        )
    if is_steady and snapshot(env) != before:
        yield Fault(
            field="scripted_action()",
            agent_id=agent_id,
            turn=turn,
            found="another state of the episode after the call",
            expected="the episode as it was: an expert only says what it would say",
            remedy="read the state and change nothing",
        )
