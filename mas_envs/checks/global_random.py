"""The generators that an environment shares with the rest of its process, and must leave alone."""

import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import play
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import Subject

__all__ = ["global_generators_untouched"]

_STIR = 748_159


def global_generators_untouched(subject: Subject) -> Iterator[Fault]:
    """Making an environment and playing it leaves the generators of `random`, numpy and torch as they were."""
    kept = _states()
    _seed_all(_STIR)  # so that a generator which earlier checks left at the environment's own seed is seen to move
    try:
        before = _comparable(_states())
        for actor in actors_for(subject).values():
            play(subject.fresh(), actor, subject.seed, limit_s=subject.step_limit_s)
        for name, state in _comparable(_states()).items():
            if state != before[name]:
                yield Fault(
                    field=f"the global generator of {name}",
                    found="another state after an episode than before",
                    expected="the same: trainers and other environments draw from it too, and their runs would repeat "
                    "or differ by it",
                    remedy="draw from self.np_random, and seed no global generator",
                )
    finally:
        _restore(kept)


def _states() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    return {
        "random": random.getstate(),
        "numpy": np.random.get_state(),
        **({} if torch is None else {"torch": torch.get_rng_state()}),
    }


def _comparable(states: dict[str, Any]) -> dict[str, str]:
    with np.printoptions(threshold=sys.maxsize):
        return {name: str(state.tolist() if name == "torch" else state) for name, state in states.items()}


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    np.random.set_state(states["numpy"])
    if "torch" in states:
        sys.modules["torch"].set_rng_state(states["torch"])
