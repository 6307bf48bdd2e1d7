"""What `mas-envs eval` can measure: a run, a plain model here or behind an endpoint, a recipe of frozen teams."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mas_envs
from trainers.config import Settings, SettingsError, load_settings, parse_settings
from trainers.progress import Reporter
from trainers.trainer import Trainer

__all__ = ["PlainModel", "is_endpoint", "trainer_of"]

_MODEL_FILES = ("config.json", "adapter_config.json")


@dataclass(frozen=True)
class PlainModel:
    """How a model that is no run takes part."""

    env: str
    """Id of the environment, in which it plays every agent."""
    max_tokens: int
    """Tokens it may write in a turn."""
    api_key_env: str | None = None
    """Environment variable that holds the key of an endpoint."""


def is_endpoint(target: str) -> bool:
    """Whether a target is an address, such as `http://localhost:8000/v1#model`."""
    return target.startswith(("http://", "https://"))


def trainer_of(
    target: str, scratch: Path, plain: PlainModel, *, prices: Mapping[str, Any] | None, reporter: Reporter
) -> Trainer:
    """A trainer whose `measure` plays the target.

    Args:
        target: Run directory, `.yaml` recipe, `URL#MODEL`, model folder or hub name.
        scratch: A directory that does not exist, for targets that are no run.
        plain: How a plain model takes part.
        prices: Agent, role or policy -> price; a plain model is the policy `model`. None keeps a run's own.
        reporter: Who is told about progress.

    Raises:
        SettingsError: If there is no such run or model, or a recipe trains its policies.
    """
    if (Path(target) / "settings.yaml").is_file():
        trainer = Trainer.resume(target, reporter=reporter)
    else:
        settings = _frozen_recipe(target) if target.endswith((".yaml", ".yml")) else _plain_settings(target, plain)
        trainer = Trainer(settings, scratch, reporter=reporter)
    if prices is not None:
        trainer.settings = parse_settings({**trainer.settings.model_dump(), "prices": prices})
    return trainer


def _frozen_recipe(target: str) -> Settings:
    settings = load_settings(target)
    if trained := [policy_id for policy_id, policy in settings.policies.items() if not policy.frozen]:
        raise SettingsError(
            f"{target} trains policies.{trained[0]}; expected a recipe whose policies are all frozen: train it, and "
            "measure its run"
        )
    return settings


def _plain_settings(target: str, plain: PlainModel) -> Settings:
    policy: dict[str, Any] = {"frozen": True, "sampling": {"max_tokens": plain.max_tokens}}
    if is_endpoint(target):
        url, _, model = target.partition("#")
        if not model:
            raise SettingsError(f"{target} names no model; expected URL#MODEL, such as http://localhost:8000/v1#judge")
        policy["endpoint"] = {"url": url, "model": model, "api_key_env": plain.api_key_env}
    elif Path(target).is_dir() and not any((Path(target) / name).is_file() for name in _MODEL_FILES):
        raise SettingsError(f"{target} holds no run (no settings.yaml) and no model (no config.json); check the path")
    else:
        policy["model"] = target
    with contextlib.closing(mas_envs.make(plain.env)) as made:
        roles = {made.unwrapped.role_of(agent_id) for agent_id in made.possible_agents}
    return parse_settings(
        {
            "name": target,
            "iterations": 0,
            "env": {"id": plain.env},
            "policies": {"model": policy},
            "agents": dict.fromkeys(sorted(roles), "model"),
        }
    )
