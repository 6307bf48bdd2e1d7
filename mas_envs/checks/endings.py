"""Beginnings and endings: episodes end in time, with the right flag, through dead steps; calls out of order say so."""

from collections.abc import Callable, Iterator
from typing import Any

from mas_envs.checks.actors import Actor, actors_for, babble, constant, echo_form
from mas_envs.checks.episodes import actor_rng, is_over, snapshot, start, turns
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.conversation import ConversationEnv
from mas_envs.error_texts import describe_error

__all__ = ["calls_in_order", "closes", "dead_steps", "episodes_end", "limit_truncates"]


def episodes_end(subject: Subject) -> Iterator[Fault]:
    """Every episode ends within the declared limit, whatever is said."""
    actors: dict[str, Actor] = actors_for(subject)
    if subject.is_textual:
        actors |= {"always 'go on'": constant("go on"), "always '.'": constant(".")}
    limit = subject.longest_episode
    for name, actor in actors.items():
        env = subject.fresh()
        start(env, subject.seed)
        *_, num_turns = turns(env, actor, actor_rng("end", name), max_turns=limit, limit_s=subject.step_limit_s)
        if not is_over(env):
            declared = f"the declared max_turns={limit}" if subject.max_turns else f"{limit} turns"
            yield Fault(
                field="terminations, truncations",
                turn=num_turns,
                found=f"an episode that goes on after {num_turns} turns ({name} actions)",
                expected=f"an end within {declared}",
                remedy="count the turns and end the episode, or pass max_turns to ConversationEnv.__init__",
            )
            return


def limit_truncates(subject: Subject) -> Iterator[Fault]:
    """An episode that the turn limit cuts is truncated, not terminated."""
    subject.require_text()
    if not isinstance(subject.fresh().unwrapped, ConversationEnv):
        raise SkipCheckError("not a ConversationEnv, so there is no turn limit that can be set for a try")
    for limit in (1, 2):
        for name, actor in actors_for(subject).items():
            free, cut = subject.fresh(), subject.fresh()
            if subject.max_turns and subject.max_turns <= limit:
                raise SkipCheckError("its turn limit is so low that nothing can be said about it")
            cut.unwrapped.max_turns = limit
            for env in (free, cut):
                start(env, subject.seed)
                for _ in turns(env, actor, actor_rng("limit", name), max_turns=limit):
                    pass
            if is_over(free):
                continue
            if not is_over(cut) or not all(cut.truncations.values()) or any(cut.terminations.values()):
                yield Fault(
                    field="truncations",
                    turn=limit,
                    found=f"terminations {cut.terminations!r} and truncations {cut.truncations!r} at max_turns={limit}",
                    expected="truncated and not terminated, for every agent",
                    remedy="leave max_turns to ConversationEnv; a cut episode has no outcome, so return the next agent "
                    "from receive() all the same",
                )
                return


def dead_steps(subject: Subject) -> Iterator[Fault]:
    """After the end each agent takes one dead step, and then nobody is left."""
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        start(env, subject.seed)
        waiting: list[str] = []
        for _ in turns(env, actor, actor_rng("dead", name), max_turns=subject.longest_episode):
            waiting = waiting if is_over(env) else list(env.agents)
        if not is_over(env):
            return
        for _ in tuple(waiting):
            agent_id = env.agent_selection if env.agents else None
            if agent_id is None or agent_id not in waiting:
                break
            env.step(None)
            waiting.remove(agent_id)
        if waiting or env.agents:
            yield Fault(
                field="agents",
                found=f"{env.agents!r} after the dead steps; without one were {waiting!r}",
                expected="one dead step, step(None), for each agent, and an empty list then",
                remedy="call _deads_step_first() when agents have ended, and _was_dead_step(action) in their steps",
            )
            return


def calls_in_order(subject: Subject) -> Iterator[Fault]:
    """`step`, `last` and `observe` before the first reset raise and say so; a step after the end changes nothing."""
    calls: dict[str, Callable[[AnyEnv], Any]] = {
        "step()": lambda env: env.step(_any_action(subject, env)),
        "last()": lambda env: env.last(),
        "observe()": lambda env: env.observe(env.possible_agents[0]),
    }
    for name, call in {} if subject.is_used else calls.items():
        error = _error_of(call, subject.fresh())
        if "reset" not in str(error):
            yield _order_fault(name, f"{_described(error)} before the first reset")
    env = subject.fresh()
    start(env, subject.seed)
    for _ in turns(env, babble, actor_rng("order"), max_turns=subject.longest_episode, dead_steps=True):
        pass
    before = snapshot(env, observe=False)
    error = _error_of(calls["step()"], env)
    if error is not None and "reset" not in str(error):
        yield _order_fault("step()", f"{_described(error)} after the end of the episode")
    if snapshot(env, observe=False) != before:
        yield _order_fault("step()", "a change after the end of the episode")


def closes(subject: Subject) -> Iterator[Fault]:
    """`close` works at any moment and any number of times."""
    for moment in ("before the first reset", "in mid-episode", "after the end"):
        env = subject.fresh()
        if moment != "before the first reset":
            start(env, subject.seed)
            limit = 1 if moment == "in mid-episode" else subject.longest_episode
            for _ in turns(env, babble, actor_rng("close"), max_turns=limit):
                pass
        for number in ("first", "second"):
            try:
                env.close()
            except Exception as error:  # noqa: BLE001  # third-party code may raise anything
                yield Fault(
                    field="close()",
                    found=f"{describe_error(error)} at the {number} call {moment}",
                    expected="no error: close() may be called at any moment and any number of times",
                    remedy="remember that it is closed, and free only what is there",
                )
                return
        try:
            env.reset(seed=subject.seed)
        except Exception as error:  # noqa: BLE001  # as above; only an error that does not say why is a fault
            if "close" not in str(error):
                yield Fault(
                    field="reset() after close()",
                    found=describe_error(error),
                    expected="a new episode, or an error that says that the environment is closed",
                    remedy="open again in reset what close() freed, or raise an error that says so",
                )
                return


def _error_of(call: Callable[[AnyEnv], Any], env: AnyEnv) -> Exception | None:
    try:
        call(env)
    except Exception as error:  # noqa: BLE001  # which error it is, is what the caller looks at
        return error
    return None


def _described(error: Exception | None) -> str:
    return "no error" if error is None else describe_error(error)


def _any_action(subject: Subject, env: AnyEnv) -> Any:
    actor = echo_form if subject.is_textual else babble
    return actor(env, env.possible_agents[0], None, actor_rng("any"))


def _order_fault(call: str, found: str) -> Fault:
    return Fault(
        field=call,
        found=found,
        expected="an error whose text says what to do: call reset() first",
        remedy="check it at the start of step, last and observe, or subclass ConversationEnv, which does",
    )
