"""OpenEnv: a team's environment behind a server, its agents played by whoever connects.

    app = team_app("MathLoop-v0")  # uvicorn my_server:app

    with TeamClient(base_url="http://127.0.0.1:8000").sync() as client:
        result = client.reset(index=0)
        while not result.done:
            result = client.step(TeamAction(text=answer(result.observation.messages)))

Each connection is a session with an episode of its own. An observation says whose turn it is, what that agent is shown,
and what every agent has earned since the observation before.
"""

import importlib.metadata
import random
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pettingzoo import AECEnv
from pydantic import Field, WithJsonSchema

from adapters.env_maker import env_maker
from adapters.plain_values import plain
from adapters.versions import refuse_untested
from mas_envs.agent_keys import match_keys, roles_of
from mas_envs.argument_checks import check_speaks_text
from mas_envs.conversation import Skill
from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError, MasEnvsError, MissingExtraError
from mas_envs.policies import AgentPolicy, ask, assign_policies

__all__ = [
    "OpenEnvVersionError",
    "TeamAction",
    "TeamClient",
    "TeamEnvironment",
    "TeamObservation",
    "TeamState",
    "check_version",
    "team_app",
]

SUPPORTED = ((0, 10), (0, 11))


class OpenEnvVersionError(MasEnvsError, ImportError):
    """The installed OpenEnv is a version that was not tested."""


def check_version(version: str) -> None:
    """Refuse versions of OpenEnv that were not tested.

    Raises:
        OpenEnvVersionError: Names the version and those that are supported.
    """
    refuse_untested("openenv", version, SUPPORTED, OpenEnvVersionError)


try:
    check_version(importlib.metadata.version("openenv"))
    from openenv.core import Action, EnvClient, Environment, Observation, State, create_app
    from openenv.core.client_types import StepResult
    from openenv.core.env_server.types import EnvironmentMetadata
except OpenEnvVersionError:
    raise
except ModuleNotFoundError as error:
    missing = (error.name or "openenv").split(".")[0]
    raise MissingExtraError(f"adapters.openenv needs {missing}; pip install 'mas-envs[openenv]'") from error


class TeamAction(Action):
    """What the agent whose turn it is says."""

    text: Annotated[Any, WithJsonSchema({"type": "string"})]
    """The completion; Any, for the environment takes text that JSON Schema's strings cannot hold, and says so."""
    agent_id: str | None = None
    """Whose turn the client takes it to be; None takes whoever's it is."""


class TeamObservation(Observation):
    """Whose turn it is, what that agent is shown, and what everybody has earned.

    `reward` is the sum of `rewards` over the agents that the client plays.
    """

    agent_id: str | None = None
    """Who is to act; None when the episode is over."""
    role: str | None = None
    """The role of that agent."""
    messages: list[dict[str, str]] = Field(default_factory=list)
    """What it is shown."""
    rewards: dict[str, float] = Field(default_factory=dict)
    """Agent id -> what it earned since the observation before, whoever's turn brought it; what came before the first
    turn is in the observation after it, unless the episode ends without one."""
    returns: dict[str, float] = Field(default_factory=dict)
    """Agent id -> what it has earned in the episode so far."""
    terminations: dict[str, bool] = Field(default_factory=dict)
    """Agent id -> whether the task's rules ended it; kept after the agent has left."""
    truncations: dict[str, bool] = Field(default_factory=dict)
    """Agent id -> whether a limit outside the rules ended it."""
    infos: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Agent id -> its latest info."""


class TeamState(State):
    """Where the episode stands."""

    agent_id: str | None = None
    """Who is to act; None outside an episode."""
    agents: list[str] = Field(default_factory=list)
    """The agents that the client plays."""
    returns: dict[str, float] = Field(default_factory=dict)
    """Agent id -> what it has earned so far."""


class TeamEnvironment(Environment[TeamAction, TeamObservation, TeamState]):
    """The server's side of one session.

    Args:
        make: Builds an AEC environment whose observations hold `messages` and whose actions are text.
        policies: What plays agents on the server; see `mas_envs.play`. All that no key names are the client's.

    Raises:
        BadArgumentError: If a key fits no agent, a value is no policy, or no agent is left to the client.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, make: Callable[[], AECEnv[Any, Any, Any]], policies: Mapping[str, AgentPolicy | Skill] | None = None
    ) -> None:
        super().__init__()
        self.team_env = make()
        """The environment with all agents."""
        check_speaks_text(self.team_env, "adapters.openenv")
        self._role_of = roles_of(self.team_env)
        self._experts_rng = random.Random()
        self._mates = _mates(self.team_env, policies or {}, self._experts_rng)
        self._own = [agent_id for agent_id in self._role_of if agent_id not in self._mates]
        self._state = TeamState(agents=self._own)
        self._is_running = False
        self._has_stepped = False
        self._num_turns = 0
        self._pending: dict[str, float] = {}
        self._last: TeamObservation = TeamObservation()

    @property
    def state(self) -> TeamState:
        """Where the episode stands."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """What the server tells about the environment."""
        name = str(self.team_env)
        agents = ", ".join(self._own)
        return EnvironmentMetadata(name=name, description=f"{name} of mas-envs; the client plays {agents}")

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, index: int | None = None, **ignored: Any
    ) -> TeamObservation:
        """Start an episode, and let the server's agents speak until it is a client's turn.

        Args:
            seed: Seeds the episode and the scripted experts; None goes on in their streams.
            episode_id: A name for it; None makes one up.
            index: Which task; None draws one.
            **ignored: What OpenEnv's clients may send besides, such as `split`.

        Raises:
            PolicyError: If a policy on the server raises or returns no `str`.
        """
        if seed is not None:
            self._experts_rng.seed(f"{seed}/experts")
        self._is_running = self._has_stepped = False
        self._num_turns = 0
        env = self.team_env
        env.reset(seed=seed, options=None if index is None else {"task": index})
        self._pending = {agent_id: float(env.rewards.get(agent_id, 0.0)) for agent_id in self._role_of}
        self._last = TeamObservation(returns=dict(self._pending))
        self._state = TeamState(episode_id=episode_id or uuid.uuid4().hex, agents=self._own)
        return self._until_own_turn()

    def step(self, action: TeamAction, timeout_s: float | None = None, **ignored: Any) -> TeamObservation:
        """Take the turn of the agent that is to act, and those of the server's agents until it is a client's again.

        Raises:
            EpisodeOrderError: Outside an episode; over plain HTTP every request is.
            InvalidActionError: If the text is none, or it is another agent's turn; nothing has changed then.
            PolicyError: If a policy on the server raises or returns no `str`; the episode is given up.
        """
        if not self._is_running:
            raise EpisodeOrderError(
                "step() outside an episode; call reset() first, on the same connection: each is a session of its own"
            )
        agent_id = self.team_env.agent_selection
        if not isinstance(action.text, str):
            raise InvalidActionError(
                f"text={action.text!r:.80} of type {type(action.text).__name__} for {agent_id}; expected the "
                "completion as a str; decode token ids before you send them"
            )
        if action.agent_id not in (None, agent_id):
            raise InvalidActionError(
                f"agent_id={action.agent_id!r:.80}: it is the turn of {agent_id}; act for that agent, or leave "
                "agent_id out"
            )
        self._is_running = False  # until nothing can go wrong any more
        self._has_stepped = True
        self._state.step_count += 1
        self._take(agent_id, action.text)
        return self._until_own_turn()

    def close(self) -> None:
        """Close the environment inside."""
        self.team_env.close()

    # OpenEnv's API of tasks: one split, without the answers.

    def list_splits(self) -> list[str]:
        """The name of the task set; nothing where the environment has no tasks."""
        return [self._tasks().name] if self._tasks() else []

    def num_tasks(self, split: str) -> int:
        """Number of tasks."""
        return len(self._tasks())

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Id and question of a task; its answer stays here."""
        task = self._tasks()[index]
        return {"index": index, "id": task.id, "question": str(task.question)}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Those of a slice."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Those of all tasks."""
        return self.get_task_range(split)

    def _tasks(self) -> Any:
        return getattr(self.team_env.unwrapped, "tasks", ())

    def _until_own_turn(self) -> TeamObservation:
        """Let the server's agents speak, and ended agents leave, until a client is to act or all is over."""
        env = self.team_env
        while env.agents:
            self._note()
            agent_id = env.agent_selection
            if env.terminations[agent_id] or env.truncations[agent_id]:
                env.step(None)
            elif agent_id in self._mates:
                text = ask(self._mates[agent_id], agent_id, env.observe(agent_id)["messages"], self._num_turns)
                self._take(agent_id, text)
            else:
                self._is_running = True
                return self._observation(agent_id)
        return self._observation(None)

    def _take(self, agent_id: str, text: str) -> None:
        self.team_env.step(text)
        self._num_turns += 1
        for payee, reward in self.team_env.rewards.items():
            self._pending[payee] += float(reward)
            self._last.returns[payee] += float(reward)

    def _note(self) -> None:
        """Keep flags and infos of agents for when they have left."""
        env = self.team_env
        for agent_id in env.agents:
            self._last.terminations[agent_id] = bool(env.terminations[agent_id])
            self._last.truncations[agent_id] = bool(env.truncations[agent_id])
            self._last.infos[agent_id] = plain(env.infos[agent_id])

    def _observation(self, agent_id: str | None) -> TeamObservation:
        pays = self._has_stepped or agent_id is None
        rewards = self._pending if pays else dict.fromkeys(self._pending, 0.0)
        if pays:
            self._pending = dict.fromkeys(self._pending, 0.0)
        self._state.agent_id, self._state.returns = agent_id, dict(self._last.returns)
        shown = () if agent_id is None else self.team_env.observe(agent_id)["messages"]
        seen: TeamObservation = self._last.model_copy(
            deep=True,
            update={
                "agent_id": agent_id,
                "role": None if agent_id is None else self._role_of[agent_id],
                "messages": [dict(message) for message in shown],
                "rewards": rewards,
                "reward": sum(rewards[own] for own in self._own),
                "done": agent_id is None,
            },
        )
        return seen


class TeamClient(EnvClient[TeamAction, TeamObservation, TeamState]):
    """OpenEnv's client with this environment's records; an action may be a plain text."""

    def _step_payload(self, action: TeamAction | str) -> dict[str, Any]:
        sent = TeamAction(text=action) if isinstance(action, str) else action
        return {"text": sent.text, "agent_id": sent.agent_id}

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        outcome = {"reward": payload["reward"], "done": payload["done"]}
        return StepResult(observation=TeamObservation(**payload["observation"], **outcome), **outcome)

    def _parse_state(self, payload: dict[str, Any]) -> TeamState:
        return TeamState(**payload)


def team_app(
    env: str | Callable[[], AECEnv[Any, Any, Any]],
    *,
    policies: Mapping[str, AgentPolicy | Skill] | None = None,
    max_sessions: int = 64,
    **kwargs: Any,
) -> Any:
    """A FastAPI application that serves a team's environment; run it with uvicorn.

    Args:
        env: An id as in `mas_envs.make`, or what builds an AEC environment that shows messages and takes text.
        policies: What plays agents on the server; see `mas_envs.play`. All that no key names are the client's.
        max_sessions: Most connections at a time; one more is refused.
        **kwargs: Arguments of the environment, with an id.

    Raises:
        BadArgumentError: If an argument is wrong, a key fits no agent, or no agent is left to the client.
    """
    make = env_maker(env, kwargs)
    name = str(TeamEnvironment(make, policies).team_env)

    def session() -> TeamEnvironment:
        return TeamEnvironment(make, policies)

    return create_app(
        session, TeamAction, TeamObservation, env_name=name, max_concurrent_envs=max_sessions, state_cls=TeamState
    )


def _nobody(messages: Any) -> str:
    raise AssertionError("an agent of the client was asked on the server")


def _mates(
    env: AECEnv[Any, Any, Any], policies: Mapping[str, AgentPolicy | Skill], rng: random.Random
) -> dict[str, AgentPolicy]:
    """Agent id -> what plays it on the server."""
    role_of = roles_of(env)
    named = match_keys(policies, role_of).key_of
    own = [agent_id for agent_id in role_of if agent_id not in named]
    team = assign_policies(env, {**policies, **dict.fromkeys(own, _nobody)}, rng)
    if not own:
        raise BadArgumentError(
            f"policies has {', '.join(map(repr, policies))}: no agent is left to the client; expected policies for "
            f"some of {', '.join(role_of)} only: take one out"
        )
    return {agent_id: team[agent_id] for agent_id in named}
