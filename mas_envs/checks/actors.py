"""What the checks let agents say: babble, the forms that prompts show, and scripted experts; all from a seed."""

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from gymnasium import spaces

from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.conversation import Skill

__all__ = [
    "Actor",
    "actors_for",
    "babble",
    "constant",
    "echo_form",
    "expert",
    "has_expert",
    "shown_forms",
    "texts_in",
    "with_content",
]

Actor = Callable[[AnyEnv, str, Any, random.Random], Any]
"""From an environment, the acting agent, its observation and a generator to an action."""

_WORDS = "so then 7 12 perhaps yes no caf\u00e9 check it again: x = 3, because the sum is odd \u2713\n".split(" ")
_FORM = re.compile(r"<([A-Za-z_][\w-]{0,40})>([^<>]{1,200})</\1>")
_BOX = re.compile(r"\\boxed\{+([^{}]{0,60})\}")


def babble(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
    """A few random words; a sample where the action space is not text."""
    space = env.action_space(agent_id)
    if isinstance(space, spaces.Text):
        return _fitting(" ".join(rng.choices(_WORDS, k=rng.randint(1, 8))), space)
    sampler = copy.deepcopy(space)
    sampler.seed(rng.randrange(2**31))
    has_mask = isinstance(observation, dict) and "action_mask" in observation
    return sampler.sample(observation["action_mask"]) if has_mask else sampler.sample()


def echo_form(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
    """Words in one of the forms that the prompt shows, such as `<verify>reject</verify>`; babble where it has none."""
    forms = shown_forms(observation)
    space = env.action_space(agent_id)
    if not forms or not isinstance(space, spaces.Text):
        return babble(env, agent_id, observation, rng)
    return _fitting(f"{rng.choice(_WORDS)} {rng.choice(forms)}", space)


def expert(skill: Skill) -> Actor:
    """The environment's scripted expert with a given skill; forms of the prompt for a role that has none."""

    def act(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
        try:
            action = env.unwrapped.scripted_action(agent_id, rng, skill)
        except Exception:  # noqa: BLE001  # a broken expert is the finding of the check of experts, not of every one
            return echo_form(env, agent_id, observation, rng)
        return action if isinstance(action, str) else echo_form(env, agent_id, observation, rng)

    return act


def constant(text: str) -> Actor:
    """An agent that always says the same."""

    def act(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
        return text

    return act


def actors_for(subject: Subject) -> dict[str, Actor]:
    """Name -> actor, for every kind that the environment allows."""
    actors: dict[str, Actor] = {"babble": babble}
    if subject.is_textual:
        actors["echo"] = echo_form
    if subject.uses_experts and has_expert(subject):
        actors["expert"] = expert(Skill())
        actors["clumsy expert"] = expert(Skill(accuracy=0.3, malformed=0.3))
    return actors


def has_expert(subject: Subject) -> bool:
    """Whether the environment has a scripted expert for the first speaker."""
    if not subject.is_textual:
        return False
    env = subject.fresh()
    if not hasattr(env.unwrapped, "scripted_action"):
        return False
    env.reset(seed=subject.seed)
    try:
        env.unwrapped.scripted_action(env.agent_selection, random.Random(subject.seed))
    except Exception:  # noqa: BLE001  # a broken expert is the finding of the check of experts, not of every one
        return False
    return True


def shown_forms(observation: Any) -> list[str]:
    """The tag blocks and boxes that an observation shows, as an agent could say them."""
    forms: dict[str, None] = {}
    for _, text in texts_in(observation):
        forms |= dict.fromkeys(form.group() for form in _FORM.finditer(text[:20_000]) if form[1] != "think")
        if _BOX.search(text[:20_000]):
            forms[r"\boxed{4}"] = None
    return list(forms)


def with_content(said: Any, content: str) -> str | None:
    """What was said, with another content in its last tag block or box; None where it has neither.

    >>> with_content("So <verify>approve</verify>.", "")
    'So <verify></verify>.'
    """
    if not isinstance(said, str):
        return None
    found = max((*_FORM.finditer(said), *_BOX.finditer(said)), key=lambda form: form.end(), default=None)
    if found is None:
        return None
    group = 2 if found.re is _FORM else 1
    return said[: found.start(group)] + content + said[found.end(group) :]


def texts_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a nested observation, and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from texts_in(part, f"{path}[{key!r}]")
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from texts_in(part, f"{path}[{index}]")


def _fitting(text: str, space: spaces.Text) -> str:
    return text[: space.max_length].ljust(space.min_length, ".")
