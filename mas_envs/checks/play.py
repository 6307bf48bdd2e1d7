"""The check that all others stand on: episodes with ordinary actions run without an error."""

from collections.abc import Iterator

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import SHORT_EPISODE, actor_rng, resume, start
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import Subject
from mas_envs.checks.time_limit import TimeUp
from mas_envs.error_texts import describe_error

__all__ = ["plays"]

_NUM_EPISODES = 4


def plays(subject: Subject) -> Iterator[Fault]:
    """Make, reset, and play episodes with every kind of ordinary action; nothing may raise or hang."""
    for name, actor in actors_for(subject).items():
        for seed in range(subject.seed, subject.seed + _NUM_EPISODES):
            turn, agent_id, action = None, None, None
            try:
                env = subject.fresh()
                start(env, seed, limit_s=subject.step_limit_s)
                for frame in resume(
                    env, actor, actor_rng("play", name, seed), max_turns=SHORT_EPISODE, limit_s=subject.step_limit_s
                ):
                    turn, agent_id, action = frame.turn, frame.agent_id, frame.action
            except (Exception, TimeUp) as error:  # noqa: BLE001  # third-party code may raise anything
                yield Fault(
                    field="reset()" if turn is None else f"the step with the action {action!r:.80}",
                    agent_id=agent_id or None,
                    turn=turn,
                    found=describe_error(error),
                    expected=f"an episode without an error (seed {seed}, {name} actions)",
                    remedy="mend this first: the other checks need episodes that run",
                )
                return
