"""Same seed, same episode: in one process, after other episodes, in a second process; and other seeds, others."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import Frame, first_difference, play, snapshot, start
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.replay_process import CANNOT_MAKE, Request, opening, replay
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import short

__all__ = ["reset_forgets", "same_in_second_process", "same_seed", "seeds_differ", "unseeded_reset"]

_NUM_SEEDS = 16
_NUM_RESETS = 6
_HASH_SEEDS = ("1", "2")
_PROCESS_LIMIT_S = 120.0


def same_seed(subject: Subject) -> Iterator[Fault]:
    """Two fresh environments, one seed, one sequence of actions."""
    for name, actor in actors_for(subject).items():
        for seed in (subject.seed, subject.seed + 1):
            first, second = (play(subject.fresh(), actor, seed, limit_s=subject.step_limit_s) for _ in range(2))
            yield from _compared(
                first,
                second,
                f"with seed {seed} and {name} actions",
                "draw every random number from `self.np_random`, which reset(seed=...) seeds, never from a global or "
                "unseeded generator; keep no state outside the episode",
            )


def reset_forgets(subject: Subject) -> Iterator[Fault]:
    """A used environment, reset, plays like a fresh one; also when it was left in mid-episode."""
    for name, actor in actors_for(subject).items():
        fresh = play(subject.fresh(), actor, subject.seed, limit_s=subject.step_limit_s)
        for max_turns, when in ((10_000, "after a whole episode"), (1, "in mid-episode")):
            env = subject.fresh()
            turns = min(max_turns, subject.longest_episode)
            play(env, actor, subject.seed + 1, max_turns=turns, limit_s=subject.step_limit_s)
            again = play(env, actor, subject.seed, limit_s=subject.step_limit_s)
            yield from _compared(
                fresh,
                again,
                f"after a reset {when}, with {name} actions",
                "make all state of an episode anew in reset (in `begin` of a ConversationEnv)",
            )


def seeds_differ(subject: Subject) -> Iterator[Fault]:
    """Some difference between the episodes of several seeds."""
    _require_choice(subject)
    seeds = range(subject.seed, subject.seed + _NUM_SEEDS)
    openings = [opening(subject.fresh(), seed) for seed in seeds]
    if all(one == openings[0] for one in openings):
        yield Fault(
            field="reset(seed)",
            found=f"the same start of the episode for each of the {_NUM_SEEDS} seeds {seeds[0]} to {seeds[-1]}",
            expected=f"at least one difference: the environment holds {subject.num_tasks} tasks",
            remedy="seed the generator in reset with the seed that is passed, and draw the task from it",
        )


def unseeded_reset(subject: Subject) -> Iterator[Fault]:
    """`reset()` without a seed goes on in the stream that the last seed began."""
    series = [_stream(subject.fresh(), subject.seed) for _ in range(2)]
    for index, (one, other) in enumerate(zip(*series, strict=True)):
        if one != other:
            yield Fault(
                field="reset()",
                found=f"another start of the episode at reset number {index + 2} of two environments with the same "
                f"first seed {subject.seed}",
                expected="the same: only the first reset of a training run is seeded, the others go on in its stream",
                remedy="leave the generator as it is when the seed is None; do not make a new one",
            )
            return
    if (subject.num_tasks or 0) > 1 and all(one == series[0][0] for one in series[0]):
        yield Fault(
            field="reset()",
            found=f"the same start of the episode at {_NUM_RESETS} resets without a seed",
            expected=f"new episodes: the environment holds {subject.num_tasks} tasks",
            remedy="leave the generator as it is when the seed is None; do not seed it with a default",
        )


def same_in_second_process(subject: Subject) -> Iterator[Fault]:
    """The same episodes in processes with another hash seed."""
    request = Request(subject.recipe, subject.seed, subject.step_limit_s, subject.uses_experts)
    here = replay(request)
    with ThreadPoolExecutor(len(_HASH_SEEDS)) as pool:
        answers = list(pool.map(functools.partial(_ask_process, request), _HASH_SEEDS))
    for hash_seed, answer in zip(_HASH_SEEDS, answers, strict=True):
        if "problem" in answer:
            yield Fault(
                field="a second process",
                found=f"{answer['problem']} under PYTHONHASHSEED={hash_seed}, where this process has no error",
                expected="the same episodes in every process",
                remedy="make everything that the environment needs in its constructor, not in the script around it",
            )
            return
        for agent_id, samples in here["samples"].items():
            if samples != answer["samples"][agent_id]:
                yield Fault(
                    field=f"action_space({agent_id!r}).sample()",
                    agent_id=agent_id,
                    found=f"{short(answer['samples'][agent_id], 60)} under PYTHONHASHSEED={hash_seed}, "
                    f"{short(samples, 60)} here, for the same seed",
                    expected="the same samples in every process",
                    remedy="give the space its characters or elements in a fixed order, a str or a list, not a set",
                )
        for name, frames in here["episodes"].items():
            yield from _compared(
                [Frame(**frame) for frame in frames],
                [Frame(**frame) for frame in answer["episodes"][name]],
                f"in a process with PYTHONHASHSEED={hash_seed}, {name} actions",
                "do not let the order of a set, hash() or id() of anything decide; sort, or keep a list",
            )


def _ask_process(request: Request, hash_seed: str) -> dict[str, Any]:
    """What a second process saw; the key `problem` alone when the episodes failed there.

    Raises:
        SkipCheckError: If the environment cannot be made there.
    """
    paths = [path or os.getcwd() for path in sys.path]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",  # several processes at once: the threads of numerical libraries would fight for cores
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        (sys.executable, "-P", "-m", "mas_envs.checks.replay_process"),
        input=request.dumps(),
        capture_output=True,
        env=environment,
        timeout=_PROCESS_LIMIT_S,
        check=False,
    )
    problem = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode == CANNOT_MAKE:
        raise SkipCheckError(
            f"it cannot be made in a second process ({short(problem)}); check it by its id, or from a module that can "
            "be imported"
        )
    if done.returncode != 0:
        return {"problem": problem}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _compared(first: list[Frame], second: list[Frame], where: str, remedy: str) -> Iterator[Fault]:
    difference = first_difference(first, second)
    if difference is not None:
        yield Fault(
            field=difference.field,
            agent_id=difference.agent_id or None,
            turn=difference.turn,
            found=f"{difference.first} once and {difference.second} {where}",
            expected="the same episode for the same seed and actions",
            remedy=remedy,
        )


def _stream(env: AnyEnv, seed: int) -> list[dict[str, Any]]:
    """The starts of the episodes that follow a seeded one."""
    start(env, seed)
    starts = []
    for _ in range(_NUM_RESETS):
        start(env, None)
        starts.append(snapshot(env))
    return starts


def _require_choice(subject: Subject) -> None:
    if subject.num_tasks is None:
        raise SkipCheckError("the environment has no attribute `tasks`, so nothing says that seeds should differ")
    if subject.num_tasks < 2:
        raise SkipCheckError("the environment holds only one task, so seeds need not differ")
