"""Demonstrations by the environment's scripted experts, for warm starts and for training a tiny tokenizer."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pettingzoo import AECEnv

from adapters.llm import EnvironmentFailure
from mas_envs.conversation import Skill
from mas_envs.error_texts import describe_error
from mas_envs.errors import MasEnvsError
from mas_envs.spaces import Message

__all__ = ["Demonstration", "collect_demonstrations"]


@dataclass(frozen=True)
class Demonstration:
    """What an expert would say in one situation."""

    role: str
    """Role of the agent."""
    messages: tuple[Message, ...]
    """What it was shown."""
    text: str
    """What it said."""


def collect_demonstrations(
    env: AECEnv[Any, Any, Any],
    num_episodes: int,
    *,
    seed: int,
    behaviour: Mapping[str, Skill] | None = None,
    target: Mapping[str, Skill] | None = None,
    on_episode: Callable[[], None] | None = None,
) -> list[Demonstration]:
    """Play episodes with one team of experts and note what another would have said in each situation.

    A mediocre `behaviour` reaches the situations a learner will meet, such as a rejected solution; a perfect `target`
    shows what to do there.

    Args:
        env: An environment with scripted experts.
        num_episodes: Episodes to play.
        seed: Seed of episodes and experts.
        behaviour: Role -> skill of the team that acts; perfect where none is given.
        target: Role -> skill of the team that is noted down; perfect where none is given.
        on_episode: Called after each episode, for progress bars.

    Raises:
        MasEnvsError: If the environment has no expert for one of its roles.
        EnvironmentFailure: If the environment or an expert raises.
    """
    base = env.unwrapped
    acting, noting = random.Random(f"{seed}/behaviour"), random.Random(f"{seed}/target")
    demonstrations: list[Demonstration] = []
    for episode in range(num_episodes):
        with _named_failures(env):
            env.reset(seed=seed if episode == 0 else None)
            while env.agents:
                agent_id = env.agent_selection
                if env.terminations[agent_id] or env.truncations[agent_id]:
                    env.step(None)
                    continue
                role = base.role_of(agent_id)
                skill = (target or {}).get(role)
                text = base.scripted_action(agent_id, noting, skill)
                demonstrations.append(Demonstration(role, env.observe(agent_id)["messages"], text))
                env.step(base.scripted_action(agent_id, acting, (behaviour or {}).get(role)))
        if on_episode is not None:
            on_episode()
    return demonstrations


@contextlib.contextmanager
def _named_failures(env: AECEnv[Any, Any, Any]) -> Iterator[None]:
    """Errors of an environment with the place in its code and in the episode."""
    try:
        yield
    except MasEnvsError:
        raise
    except Exception as error:
        task = getattr(env.unwrapped, "task", None)
        raise EnvironmentFailure(
            f"{env} failed while its scripted experts played, at the turn of {env.agent_selection}, task "
            f"{getattr(task, 'id', None)!r}: {describe_error(error)}"
        ) from error
