"""Environments do not touch each other: two side by side, copies made in mid-episode, many in threads."""

import copy
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from mas_envs.checks.actors import actors_for, babble
from mas_envs.checks.episodes import (
    Difference,
    Frame,
    actor_rng,
    advance,
    first_difference,
    play,
    replayed,
    resume,
    snapshot,
    start,
)
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import Subject

__all__ = ["copies_independent", "same_in_threads", "side_by_side"]

_NUM_THREADS = 16
_DEEPEST_COPY = 3


def side_by_side(subject: Subject) -> Iterator[Fault]:
    """Two environments whose episodes are played in turns, step by step, play as if they were alone."""
    for name, actor in actors_for(subject).items():
        seeds = (subject.seed, subject.seed + 1)
        alone = [play(subject.fresh(), actor, seed, limit_s=subject.step_limit_s) for seed in seeds]
        envs = [subject.fresh() for _ in seeds]
        for env, seed in zip(envs, seeds, strict=True):
            start(env, seed)
        plays = [
            resume(env, actor, actor_rng("episode", seed), limit_s=subject.step_limit_s)
            for env, seed in zip(envs, seeds, strict=True)
        ]
        mixed = list(itertools.zip_longest(*plays))
        for index, seed in enumerate(seeds):
            difference = first_difference(alone[index], [pair[index] for pair in mixed if pair[index] is not None])
            if difference is not None:
                yield _fault(
                    difference,
                    f"when another environment of the class was played at the same time (seed {seed}, {name} actions)",
                    "an episode that no other environment can touch",
                    "keep episode state on the instance, made in reset, not on the class or the module",
                )


def copies_independent(subject: Subject) -> Iterator[Fault]:
    """A deep copy made in mid-episode plays on like the original, and neither changes the other."""
    for name, actor in actors_for(subject).items():
        whole = play(subject.fresh(), actor, subject.seed, limit_s=subject.step_limit_s)
        for depth in range(min(len(whole) - 1, _DEEPEST_COPY) + 1):
            yield from _copied_at(subject, whole, depth, f"a copy made after {depth} steps, with {name} actions")


def same_in_threads(subject: Subject) -> Iterator[Fault]:
    """Many episodes in threads, each on its own environment, are the same as one after the other."""
    actors = actors_for(subject)
    actor = actors.get("clumsy expert", actors.get("echo", babble))

    def episode(seed: int) -> list[Frame]:
        return play(subject.fresh(), actor, seed, limit_s=subject.step_limit_s)

    alone = subject.fresh()
    seeds = range(subject.seed, subject.seed + subject.num_episodes)
    in_sequence = [play(alone, actor, seed, limit_s=subject.step_limit_s) for seed in seeds]
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        in_threads = list(pool.map(episode, seeds))
    for seed, one, other in zip(seeds, in_sequence, in_threads, strict=True):
        difference = first_difference(one, other)
        if difference is not None:
            yield _fault(
                difference,
                f"with {_NUM_THREADS} threads at work (seed {seed})",
                "the same episode in a thread as alone",
                "keep state on the instance; guard what several instances share, such as a client, with a lock",
            )
            return


def _copied_at(subject: Subject, whole: list[Frame], depth: int, where: str) -> Iterator[Fault]:
    env = subject.fresh()
    start(env, subject.seed)
    advance(env, whole[:depth], limit_s=subject.step_limit_s)
    before = snapshot(env)
    twin = copy.deepcopy(env)
    rest = whole[depth:]
    turns = sum(frame.live for frame in whole[:depth])
    limit_s = subject.step_limit_s
    continued = list(resume(twin, replayed(rest), actor_rng(), first_turn=turns, limit_s=limit_s))
    if difference := first_difference(rest, continued):
        yield _fault(
            difference,
            f"in {where}",
            "the copy to stand where the original stands and to play on like it",
            "let copy.deepcopy copy the whole state: no EzPickle, no __deepcopy__ or __reduce__ that builds anew",
        )
        return
    if difference := first_difference([replace(rest[0], fields=before)], [replace(rest[0], fields=snapshot(env))]):
        yield _fault(
            difference,
            f"in the original after {where} had played on",
            "an original that its copy cannot change",
            "copy.deepcopy must not share episode state: look for state on the class, in closures or in __deepcopy__",
        )


def _fault(difference: Difference, where: str, expected: str, remedy: str) -> Fault:
    return Fault(
        field=difference.field,
        agent_id=difference.agent_id or None,
        turn=difference.turn,
        found=f"{difference.first} alone and {difference.second} {where}",
        expected=expected,
        remedy=remedy,
    )
