"""What answers for an agent: any callable from messages to text, or the environment's scripted expert."""

import inspect
import random
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pettingzoo import AECEnv

from mas_envs.agent_keys import match_keys, roles_of
from mas_envs.conversation import ConversationEnv, Skill
from mas_envs.errors import BadArgumentError, MasEnvsError
from mas_envs.spaces import Message

if TYPE_CHECKING:
    from mas_envs.playing import PlayedEpisode

__all__ = ["AgentPolicy", "PolicyError", "ScriptedExpert", "ask", "assign_policies"]


@runtime_checkable
class AgentPolicy(Protocol):
    """Anything that can answer for an agent: a function, a model behind a client, a graph, a person at a terminal."""

    def __call__(self, messages: tuple[Message, ...], /) -> str:
        """The completion for the messages that the agent is shown."""
        ...


class PolicyError(MasEnvsError, RuntimeError):
    """A policy raised, or answered with something that is no text; its `__cause__` is what it raised."""

    def __init__(self, message: str, *, agent_id: str = "", turn_index: int = 0) -> None:
        super().__init__(message)
        self.agent_id = agent_id
        """Whose policy it was."""
        self.turn_index = turn_index
        """Turns that all agents had taken before."""
        self.episode: PlayedEpisode | None = None
        """What `play` had recorded until then, truncated here; None where no record is kept."""


@dataclass
class ScriptedExpert:
    """An `AgentPolicy`: what the environment's own expert would say now. A deep copy follows the copied environment."""

    env: Any
    """The unwrapped environment, which knows more than the messages say."""
    agent_id: str
    """For whom it answers."""
    rng: random.Random
    """Where its dice come from; experts of one team may share it."""
    skill: Skill | None = None
    """How good it is; None is perfect."""

    def __call__(self, messages: tuple[Message, ...], /) -> str:
        """The expert's completion; what it knows comes from the environment."""
        text: str = self.env.scripted_action(self.agent_id, self.rng, self.skill)
        return text


def assign_policies(
    env: AECEnv[Any, Any, Any],
    policies: Mapping[str, AgentPolicy | Skill],
    rng: random.Random,
    *,
    leave: str | None = None,
) -> dict[str, AgentPolicy]:
    """Agent id -> policy, for every agent; those that no key names are played by the environment's scripted experts.

    Args:
        env: The environment.
        policies: Agent id, role, or pattern such as `solver_*` -> a callable, or a `Skill` for a scripted expert.
        rng: Where the experts' dice come from.
        leave: An agent that needs no policy, and must not be named by one.

    Raises:
        BadArgumentError: If a key fits no agent, a value is no policy, or an agent has neither policy nor expert.
    """
    if not isinstance(policies, Mapping) or not all(isinstance(key, str) for key in policies):
        raise BadArgumentError(
            f"policies={policies!r:.80}: expected a mapping from agent ids, roles or patterns to callables; name the "
            f"agents, such as {{{env.possible_agents[0]!r}: ...}}"
        )
    role_of = roles_of(env)
    match = match_keys(policies, role_of)
    if match.unknown:
        raise BadArgumentError(
            f"policies has {', '.join(map(repr, match.unknown))}: neither an agent nor a role; agents are "
            f"{', '.join(role_of)}, roles are {', '.join(dict.fromkeys(role_of.values()))}"
        )
    for key, value in policies.items():
        _check_policy(key, value)
    if leave is not None and match.key_of.get(leave) in (leave, role_of[leave]):
        own = match.key_of[leave]
        if own not in [key for agent_id, key in match.key_of.items() if agent_id != leave]:
            raise BadArgumentError(
                f"policies[{own!r}]: {leave} is the agent that is left to act; expected policies for the others: take "
                "it out"
            )
    team: dict[str, AgentPolicy] = {}
    for agent_id in role_of:
        if agent_id == leave:
            continue
        chosen = policies[match.key_of[agent_id]] if agent_id in match.key_of else Skill()
        team[agent_id] = _expert(env, agent_id, rng, chosen) if isinstance(chosen, Skill) else chosen
    return team


def ask(policy: AgentPolicy, agent_id: str, messages: Sequence[Message], turn_index: int) -> str:
    """The policy's completion; it gets copies of the messages, so that nothing it does to them reaches the episode.

    Raises:
        PolicyError: If it raises or gives back anything but a `str`; names agent and turn.
    """
    try:
        text = policy(tuple(Message(**message) for message in messages))
    except Exception as error:
        raise PolicyError(
            f"the policy of {agent_id} raised {type(error).__name__} in turn {turn_index}: {error}; expected a "
            "completion: mend the policy and play the episode again",
            agent_id=agent_id,
            turn_index=turn_index,
        ) from error
    if isinstance(text, str):
        return text
    if inspect.iscoroutine(text):
        text.close()
    hint = "return asyncio.run(...) of it" if isinstance(text, Awaitable) else "return the text of the reply"
    raise PolicyError(
        f"the policy of {agent_id} returned {text!r:.80} of type {type(text).__name__} in turn {turn_index}; expected "
        f"the completion as a str: {hint}",
        agent_id=agent_id,
        turn_index=turn_index,
    )


def _expert(env: AECEnv[Any, Any, Any], agent_id: str, rng: random.Random, skill: Skill) -> ScriptedExpert:
    base = env.unwrapped
    written = getattr(type(base), "scripted_action", None)
    if written is None or written is ConversationEnv.scripted_action:
        raise BadArgumentError(
            f"no policy for {agent_id}, and {base} has no scripted experts to play it; add {agent_id!r} to the policies"
        )
    return ScriptedExpert(base, agent_id, rng, skill)


def _check_policy(key: str, policy: object) -> None:
    if isinstance(policy, Skill):
        return
    if not callable(policy):
        raise BadArgumentError(
            f"policies[{key!r}]={policy!r:.80}: expected a callable from messages to text, or a Skill for the scripted "
            "expert; wrap it, such as lambda messages: thing.invoke(messages)"
        )
    if inspect.iscoroutinefunction(policy) or inspect.iscoroutinefunction(getattr(policy, "__call__", None)):  # noqa: B004
        raise BadArgumentError(
            f"policies[{key!r}]={policy!r:.80} is a coroutine function; expected one that returns text: wrap it, such "
            "as lambda messages: asyncio.run(policy(messages))"
        )
