"""The environment under test: how fresh ones are made, here and in a second process."""

import copy
import functools
import pickle
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.checks.findings import SkipCheckError
from mas_envs.error_texts import describe_error
from mas_envs.errors import MasEnvsError
from mas_envs.registration import EnvSpec, make, spec
from mas_envs.tasks import TaskSet

__all__ = ["AnyEnv", "CheckArgumentError", "EnvSource", "Subject", "subject_of"]

AnyEnv: TypeAlias = AECEnv[Any, Any, Any]
Maker: TypeAlias = Callable[..., AnyEnv]
EnvSource: TypeAlias = str | EnvSpec | AnyEnv | Maker
"""An id, a spec, an environment (copies of it are checked), or a function without arguments that makes one."""

_LONGEST_EPISODE = 1_000


class CheckArgumentError(MasEnvsError, TypeError):
    """An argument of `check_env` that it cannot use."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One environment under test and the settings of its checks."""

    name: str
    """What the report calls it."""
    source: EnvSource
    """What it is made from."""
    fresh: Maker
    """A new environment, as it is before its first reset."""
    with_render_mode: Maker
    """A new environment with that render mode."""
    is_used: bool
    """Whether it had been reset before the check, so that its first reset cannot be looked at."""
    uses_experts: bool = True
    """Whether scripted experts may be asked for actions; not when the check of experts found them faulty."""
    seed: int
    """Seed of every episode and of every action."""
    num_episodes: int
    """How many episodes the checks over many episodes play."""
    step_limit_s: float
    """Longest time that one call into the environment may take."""

    @functools.cached_property
    def agent_ids(self) -> tuple[str, ...]:
        """The possible agents."""
        return tuple(self.fresh().possible_agents)

    @functools.cached_property
    def max_turns(self) -> int | None:
        """The turn limit that the environment declares; None when it has none."""
        env = self.fresh()
        limits = (getattr(one, "max_turns", None) for one in (env, env.unwrapped))
        return min((limit for limit in limits if isinstance(limit, int)), default=None)

    @property
    def longest_episode(self) -> int:
        """Turns after which an episode must have ended: the declared limit, or a generous one."""
        return self.max_turns or _LONGEST_EPISODE

    @functools.cached_property
    def is_textual(self) -> bool:
        """Whether the agents' actions are text."""
        env = self.fresh()
        return all(isinstance(env.action_space(agent_id), spaces.Text) for agent_id in env.possible_agents)

    @functools.cached_property
    def num_tasks(self) -> int | None:
        """Size of the environment's task set; None when it has none."""
        tasks = getattr(self.fresh().unwrapped, "tasks", None)
        return len(tasks) if isinstance(tasks, Sized) else None

    def require_text(self) -> None:
        """Skip the check unless the actions are text.

        Raises:
            SkipCheckError: If they are not.
        """
        if not self.is_textual:
            raise SkipCheckError("the actions of this environment are not text")

    @functools.cached_property
    def recipe(self) -> bytes:
        """The source, pickled, for `subject_of` in another process.

        Raises:
            SkipCheckError: If neither the factory nor the environment can be pickled.
        """
        try:
            return pickle.dumps(self.source)
        except Exception:  # noqa: BLE001  # third-party objects raise anything when pickled; the next way may work
            try:
                return pickle.dumps(self.fresh())
            except Exception as error:  # as above; the reason goes into the report
                raise SkipCheckError(
                    f"it cannot be made in a second process: neither the factory nor the environment can be pickled "
                    f"({describe_error(error)}); check it by its id, or pass a function at the top of a module"
                ) from error


def subject_of(source: EnvSource, *, seed: int, num_episodes: int, step_limit_s: float) -> Subject:
    """The subject that `source` names.

    Raises:
        CheckArgumentError: If `source` is none of an id, a spec, an environment or a factory.
        gymnasium.error.UnregisteredEnv: If there is no such id.
    """
    is_used = False
    if isinstance(source, str):
        source = spec(source)
    if isinstance(source, EnvSpec):
        name, fresh = source.id, _maker(source)
        with_render_mode: Maker = functools.partial(_make_with_render_mode, source)
    elif isinstance(source, AECEnv):
        is_used = bool(getattr(source, "agents", ()))
        source = _copied(source)
        name, fresh = str(source), functools.partial(copy.deepcopy, source)
        with_render_mode = functools.partial(_set_render_mode, fresh)
    elif callable(source):
        name, fresh = str(getattr(source, "__name__", None) or type(source).__name__), source
        with_render_mode = functools.partial(_set_render_mode, source)
    else:
        raise CheckArgumentError(
            f"check_env got {source!r:.80} of type {type(source).__name__}; expected an id such as 'MathLoop-v0', a "
            "spec, a PettingZoo AECEnv, or a function without arguments that makes one"
        )
    return Subject(
        name=name,
        source=source,
        fresh=fresh,
        with_render_mode=with_render_mode,
        is_used=is_used,
        seed=seed,
        num_episodes=num_episodes,
        step_limit_s=step_limit_s,
    )


def _maker(source: EnvSpec) -> Maker:
    """A function that makes the environment, with its tasks loaded once where that gives the same task set."""
    make_anew = functools.partial(make, source)
    tasks = getattr(make_anew().unwrapped, "tasks", None)
    if not isinstance(tasks, TaskSet):
        return make_anew
    make_quickly = functools.partial(make, source, tasks=tasks)
    try:
        is_same = make_quickly().unwrapped.tasks is tasks
    except (TypeError, ValueError):  # the environment takes no task set
        return make_anew
    return make_quickly if is_same else make_anew


def _copied(env: AnyEnv) -> AnyEnv:
    try:
        return copy.deepcopy(env)
    except Exception as error:  # third-party objects raise anything when copied
        raise CheckArgumentError(
            f"{env!s} cannot be deep-copied ({describe_error(error)}), which the contract asks for; to check it all "
            "the same, pass its id, or a function without arguments that makes it"
        ) from error


def _make_with_render_mode(source: EnvSpec, render_mode: str) -> AnyEnv:
    return make(source, render_mode=render_mode)


def _set_render_mode(fresh: Maker, render_mode: str) -> AnyEnv:
    env = fresh()
    env.unwrapped.render_mode = render_mode
    return env
