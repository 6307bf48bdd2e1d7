"""A real tiny model, tokenizer and team for tests of the trainer; made once a session by the fixture `tiny_folder`."""

from pathlib import Path
from typing import Any

import mas_envs
from trainers.config import (
    PolicySettings,
    SamplingSettings,
    Settings,
    TinyModelSettings,
    WarmStartSettings,
    parse_settings,
)
from trainers.demonstrations import collect_demonstrations
from trainers.rollout import EnvPool, Seats
from trainers.team import LanguagePolicy, load_policy
from trainers.tiny_model import make_tiny_model
from trainers.warm_start import clone, tokenise

ROLES = {"solver_0": "solver", "verifier_0": "verifier"}
ENV_KWARGS: dict[str, Any] = {"tasks": {"name": "arithmetic", "level": 1}, "prompt_style": "short"}


def make_env() -> Any:
    return mas_envs.make("MathLoop-v0", **ENV_KWARGS)


SIZE = TinyModelSettings(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2)


def make_tiny_folder(folder: Path, size: TinyModelSettings = SIZE) -> Path:
    """A model that has the format and a few of the sums, so that rewards differ and gradients are not zero."""
    demonstrations = collect_demonstrations(make_env(), 200, seed=0)
    texts = [message["content"] for each in demonstrations for message in each.messages]
    texts += [each.text for each in demonstrations]
    make_tiny_model(texts, folder, size, seed=0)
    policy = tiny_policy(folder)
    pairs = tokenise(demonstrations, policy.codec)
    clone(policy.model, pairs, WarmStartSettings(steps=60, batch_size=64, lr=1e-2), seed=0)
    policy.save(folder)
    return folder


def tiny_policy(folder: Path, policy_id: str = "team", max_tokens: int = 8) -> LanguagePolicy:
    return load_policy(policy_id, PolicySettings(sampling=SamplingSettings(max_tokens=max_tokens)), folder)


def tiny_seats(policy: LanguagePolicy) -> Seats:
    return Seats({policy.policy_id: policy}, dict.fromkeys(ROLES, policy.policy_id), ROLES)


def env_pool() -> EnvPool:
    return EnvPool(make_env)


def tiny_settings(folder: Path | str, **changes: Any) -> Settings:
    """Settings of a run of a few seconds on a model that exists."""
    policy = {"model": str(folder), "lr": 1e-3, "sampling": {"max_tokens": 8}}
    values: dict[str, Any] = {
        "name": "test",
        "iterations": 4,
        "threads": 1,
        "env": {"id": "MathLoop-v0", "kwargs": ENV_KWARGS},
        "policies": {"solver": dict(policy), "verifier": dict(policy)},
        "agents": {"solver": "solver", "verifier": "verifier"},
        "rollout": {"num_groups": 3, "group_size": 4},
        "evaluation": {"tasks": {"name": "arithmetic", "level": 1, "split": "test"}, "num_tasks": 4, "every": 2},
        "checkpoint": {"every": 2},
    }
    return parse_settings({**values, **changes})
