r"""verifiers: one agent of a team as the model that is evaluated or trained, its team-mates played by policies.

A module of your own, importable under the name that verifiers is given, is the whole environment package:

    # math_team.py
    from adapters.verifiers import TeamEnv, TeamHarness, team_taskset

    MathTeam = team_taskset("MathLoop-v0", agent="solver")
    __all__ = ["MathTeam", "TeamEnv", "TeamHarness"]

A rollout is an episode: one trace, its reward the sum of what the agent earned. The agent is shown what the environment
shows it at each turn, so each turn is a branch of the trace, which is one training sample.
"""

import asyncio
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pettingzoo import AECEnv

from adapters.env_maker import env_maker
from adapters.gymnasium import AgentEnv
from adapters.plain_values import plain
from adapters.versions import refuse_untested
from mas_envs.conversation import Skill
from mas_envs.errors import MasEnvsError, MissingExtraError
from mas_envs.policies import AgentPolicy

__all__ = [
    "SeatNotPlayedError",
    "TeamEnv",
    "TeamEnvConfig",
    "TeamHarness",
    "VerifiersVersionError",
    "check_version",
    "team_taskset",
]

SUPPORTED = ((0, 4), (0, 5))


class VerifiersVersionError(MasEnvsError, ImportError):
    """The installed verifiers is a version that was not tested."""


class SeatNotPlayedError(MasEnvsError, RuntimeError):
    """The rollout met no environment: another harness than `TeamHarness` ran it."""


def check_version(version: str) -> None:
    """Refuse versions of verifiers that were not tested.

    Raises:
        VerifiersVersionError: Names the version and those that are supported.
    """
    refuse_untested("verifiers", version, SUPPORTED, VerifiersVersionError)


try:
    check_version(importlib.metadata.version("verifiers"))
    import verifiers.v1 as vf
    from openai import AsyncOpenAI  # what verifiers speaks with models through
except VerifiersVersionError:
    raise
except ModuleNotFoundError as error:
    missing = (error.name or "verifiers").split(".")[0]
    raise MissingExtraError(f"adapters.verifiers needs {missing}; pip install 'mas-envs[verifiers]'") from error


@dataclass
class _Episode:
    """An episode under way, and what the agent has earned in it."""

    team: "_Team"
    env: AgentEnv
    messages: tuple[Mapping[str, str], ...]
    has_turn: bool
    is_played: bool = False
    is_stepping: bool = False
    reward: float = 0.0
    success: bool | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)

    async def step(self, text: str | None) -> None:
        """Say `text`, and note what came of it; others may take their time to answer, so not in the event loop."""
        self.is_stepping = True
        observation, reward, terminated, truncated, info = await asyncio.to_thread(self.env.step, text)
        self.is_stepping = False
        self.reward += float(reward)
        self.success = info.get("success")
        self.messages, self.has_turn = observation["messages"], bool(info["has_turn"])
        ending = {"terminated": terminated, "truncated": truncated}
        self.turns.append({"reward": float(reward), **ending, **{name: plain(value) for name, value in info.items()}})


@dataclass
class _Team:
    """Where episodes come from; environments are used again, for loading their tasks may take long."""

    make: Callable[[], AECEnv[Any, Any, Any]]
    agent: str | None
    policies: dict[str, AgentPolicy | Skill]
    free: list[AgentEnv] = field(default_factory=list)

    def build(self) -> AgentEnv:
        return AgentEnv(self.make(), agent=self.agent, policies=self.policies)

    def build_first(self) -> AECEnv[Any, Any, Any]:
        """Build an environment for the first episode; the team's, to look at."""
        self.free.append(self.build())
        return self.free[0].team_env

    def begin(self, index: int | None, seed: int | None) -> _Episode:
        env = self.free.pop() if self.free else self.build()
        observation, info = env.reset(seed=seed, options=None if index is None else {"task": index})
        return _Episode(self, env, observation["messages"], bool(info["has_turn"]))


class TeamData(vf.TaskData):
    """A row: which task, or which seed where the environment has no tasks."""

    task_index: int | None = None
    """Index into the environment's tasks; None where it has none."""
    episode_seed: int | None = None
    """Seed of the episode where there are no tasks."""


class TeamState(vf.State):
    """The live side of a rollout."""

    episode: Any = None
    """The episode under way; Any because it is no data."""


class TeamTaskConfig(vf.TaskConfig):
    """Settings under `--env.taskset.task`."""

    seed: int | None = None
    """Seeds the scripted experts of every episode; None lets them differ from rollout to rollout."""


class TeamTasksetConfig(vf.TasksetConfig):
    """Settings under `--env.taskset`."""

    num_seeds: int = 100
    """Rows of an environment that has no tasks; each has a seed of its own."""
    task: TeamTaskConfig = TeamTaskConfig()
    """Settings of each task."""


class TeamTask(vf.Task[TeamData, TeamState, TeamTaskConfig]):
    """One episode: begun here, played by the harness, paid by what the agent earned."""

    team: ClassVar[_Team]
    """Set by `team_taskset`."""

    async def setup(self, trace: Any, runtime: Any) -> None:
        """Begin the episode, and let the others speak until it is the agent's turn."""
        seed = self.config.seed if self.data.episode_seed is None else self.data.episode_seed
        trace.state.episode = await asyncio.to_thread(self.team.begin, self.data.task_index, seed)

    @vf.reward  # type: ignore[untyped-decorator]  # verifiers marks the method, and returns it as it is
    async def earned(self, trace: Any) -> float:
        """What the agent earned in the whole episode, or until a limit stopped the rollout.

        Raises:
            SeatNotPlayedError: If another harness ran the rollout.
        """
        return _played(trace).reward

    @vf.metric  # type: ignore[untyped-decorator]
    async def episode_metrics(self, trace: Any) -> dict[str, float]:
        """Success where it is known, the share of valid actions, and the parts of the reward by name."""
        episode = _played(trace)
        totals: dict[str, float] = {}
        for turn in episode.turns:
            for name, part in turn.get("reward_terms", {}).items():
                totals[f"reward_terms/{name}"] = totals.get(f"reward_terms/{name}", 0.0) + float(part)
        if episode.success is not None:
            totals["success"] = float(episode.success)
        if trace.num_turns and episode.turns:
            totals["valid_action_frac"] = sum(turn.get("valid_action", True) for turn in episode.turns) / len(
                episode.turns
            )
        return totals


class TeamHarness(vf.Harness[vf.HarnessConfig]):
    """Plays the agent's turns in this process: each is one call of the model with the messages it is shown."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """Play the episode that the task has begun until it ends.

        Raises:
            SeatNotPlayedError: If the task is none of `team_taskset`.
        """
        episode: _Episode | None = getattr(trace.state, "episode", None)
        if episode is None:
            raise SeatNotPlayedError(
                f"TeamHarness was given the task {type(data).__name__}; expected one of a taskset that team_taskset "
                "made: choose another harness for this taskset"
            )
        episode.is_played = True
        trace.info["turns"] = episode.turns
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            if not episode.has_turn:
                await episode.step(None)
            while episode.has_turn:
                reply = await client.chat.completions.create(
                    model=ctx.model, messages=[dict(message) for message in episode.messages]
                )
                await episode.step(reply.choices[0].message.content or "")
        if episode.turns[-1]["truncated"]:
            trace.stop("env_truncated")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def cleanup(self, trace: Any, runtime: Any) -> None:
        """Keep the environment for another episode, unless this one failed or was given up in the middle of a step."""
        episode: _Episode | None = getattr(trace.state, "episode", None)
        if episode is None:
            return
        trace.state.episode = None
        if not trace.errors and not episode.is_stepping:
            episode.team.free.append(episode.env)


class TeamEnvConfig(vf.EnvConfig):
    """Settings under `--env`."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The model's seat; nothing that it says is executed, so it needs no container."""


class TeamEnv(vf.Env[TeamEnvConfig]):
    """One trace an episode: that of the model's agent."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play one episode."""
        await agents.agent.run(task)


def team_taskset(
    env: str | Callable[[], AECEnv[Any, Any, Any]],
    *,
    agent: str | None = None,
    policies: Mapping[str, AgentPolicy | Skill] | None = None,
    **kwargs: Any,
) -> type[Any]:
    """A `verifiers` taskset class in which the model plays one agent of a team; export it beside the other two.

    Args:
        env: An id as in `mas_envs.make`, or what builds an AEC environment that shows messages and takes text.
        agent: The model's agent, or its role; None is the first.
        policies: What plays the others; see `mas_envs.play`. Those that no key names are scripted experts.
        **kwargs: Arguments of the environment, with an id.

    Raises:
        BadArgumentError: If there is no such agent, or another has neither policy nor expert; for a function with
            arguments.
    """
    playing = _Team(env_maker(env, kwargs), agent, dict(policies or {}))
    tasks = getattr(playing.build_first().unwrapped, "tasks", None)

    class BoundTask(TeamTask):
        team = playing

    class BoundTaskset(vf.Taskset[BoundTask, TeamTasksetConfig]):
        """The tasks of one team's environment."""

        def load(self) -> Iterator[Any]:
            """A task for each of the environment's, or for each seed where it has none."""
            if tasks is None:
                for seed in range(self.config.num_seeds):
                    yield BoundTask(TeamData(prompt=f"episode {seed}", episode_seed=seed), self.config.task)
                return
            for index in range(len(tasks)):
                task = tasks[index]
                yield BoundTask(TeamData(id=task.id, prompt=str(task.question), task_index=index), self.config.task)

    return BoundTaskset


def _played(trace: Any) -> _Episode:
    """The episode of a rollout that is being scored."""
    episode: _Episode | None = trace.state.episode
    if episode is None or not episode.is_played:
        raise SeatNotPlayedError(
            "another harness ran the rollout, and no episode was played; expected TeamHarness: put it into the __all__ "
            "of the module that has the taskset, and name no other harness"
        )
    return episode
