"""The second process of the determinism check: makes the environment, plays it, and writes down what it saw."""

import base64
import contextlib
import copy
import dataclasses
import json
import pickle
import sys
import warnings
from dataclasses import dataclass
from typing import Any

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import Frame, canonical, play, snapshot, start
from mas_envs.checks.subject import AnyEnv, Subject, subject_of
from mas_envs.error_texts import describe_error

__all__ = ["CANNOT_MAKE", "Request", "opening", "replay"]

CANNOT_MAKE = 3
"""Exit code of a process in which the environment cannot be made."""

_NUM_SEEDS = 4
_MAX_TURNS = 12


@dataclass(frozen=True)
class Request:
    """What a second process is asked to play."""

    recipe: bytes
    """What the environment is made from, pickled by `Subject.recipe` and by nobody else, so it may be unpickled."""
    seed: int
    """Seed of the first episode."""
    step_limit_s: float
    """Longest time that one step may take."""
    uses_experts: bool
    """Whether scripted experts are asked for actions."""

    def dumps(self) -> bytes:
        """The request as a line of JSON."""
        return json.dumps({**vars(self), "recipe": base64.b64encode(self.recipe).decode()}).encode()

    @classmethod
    def loads(cls, line: bytes) -> "Request":
        """The request that `dumps` wrote."""
        fields = json.loads(line)
        return cls(**{**fields, "recipe": base64.b64decode(fields["recipe"])})


def opening(env: AnyEnv, seed: int) -> dict[str, Any]:
    """What can be seen of an environment just after a reset."""
    start(env, seed)
    return snapshot(env)


def replay(request: Request) -> dict[str, Any]:
    """Episodes of several seeds and actors, and samples of the action spaces, as JSON values."""
    subject = _subject(request)
    episodes = {
        f"{name}, seed {seed}": [
            _frame_fields(frame)
            for frame in play(subject.fresh(), actor, seed, max_turns=_MAX_TURNS, limit_s=request.step_limit_s)
        ]
        for name, actor in actors_for(subject).items()
        for seed in range(request.seed, request.seed + _NUM_SEEDS)
    }
    return {"episodes": episodes, "samples": _samples(subject.fresh(), request.seed)}


def _subject(request: Request) -> Subject:
    source = pickle.loads(request.recipe)  # safe: written by the process that started this one, over its own pipe
    subject = subject_of(source, seed=request.seed, num_episodes=1, step_limit_s=request.step_limit_s)
    return dataclasses.replace(subject, uses_experts=request.uses_experts)


def _frame_fields(frame: Frame) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(json.dumps(canonical(dataclasses.asdict(frame))))
    return fields


def _samples(env: AnyEnv, seed: int) -> dict[str, list[Any]]:
    samples = {}
    for agent_id in env.possible_agents:
        space = copy.deepcopy(env.action_space(agent_id))
        space.seed(seed)
        samples[agent_id] = [canonical(space.sample()) for _ in range(3)]
    return samples


def _main() -> None:
    request = Request.loads(sys.stdin.buffer.read())
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _subject(request).fresh()
        except Exception as error:  # noqa: BLE001  # third-party code; the caller hears why and skips the check
            sys.stderr.write(f"\n{describe_error(error)}\n")
            sys.exit(CANNOT_MAKE)
        answer = replay(request)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
