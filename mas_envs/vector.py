"""`make_vec` and `VectorConversation`: many episodes at once, each at its own pace, observations batched by agent."""

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from pettingzoo import AECEnv

from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError, MasEnvsError
from mas_envs.registration import EnvSpec, make
from mas_envs.tasks import load_tasks

__all__ = ["EpisodeResult", "Pending", "VectorConversation", "make_vec"]

Options = Mapping[str, Any] | None


class Pending(NamedTuple):
    """The environments in which one agent is to act, and what it is shown there."""

    env_indices: tuple[int, ...]
    """Rising."""
    observations: tuple[Any, ...]
    """One for each index."""


@dataclass(frozen=True)
class EpisodeResult:
    """How one episode went."""

    env_index: int
    """The environment it was played in."""
    episode_index: int
    """How many episodes that environment had finished since `VectorConversation.reset`."""
    seed: int | None
    """Seed it began with; None for an episode that autoreset began, which goes on with the environment's stream."""
    task_id: str | None
    """Id of its task, where infos name one."""
    returns: Mapping[str, float]
    """Agent id -> sum of its rewards."""
    num_turns: int
    """Actions of all agents together."""
    success: bool | None
    """Whether the task was solved; None when nobody can say."""
    truncated: bool
    """Ended by a limit outside the task's rules."""
    error: str | None
    """What failed outside the agents."""


class VectorConversation:
    """Steps several environments that advance independently, and shows their open turns batched by agent.

    In an AEC environment one agent is to act; in some environments that will be the solver, in others the verifier.
    `pending` groups them, so that a policy answers all solver turns in one batch; `step` takes answers for any of them.

    >>> envs = make_vec("MathLoop-v0", 3)
    >>> envs.reset(seed=0)
    >>> envs.pending()["solver_0"].env_indices
    (0, 1, 2)
    >>> finished = envs.step({1: "four"})
    >>> {agent_id: turns.env_indices for agent_id, turns in envs.pending().items()}
    {'solver_0': (0, 2), 'verifier_0': (1,)}
    >>> finished = envs.step({"verifier_0": ["<verify>approve</verify>"]})
    >>> finished[0].env_index, finished[0].success
    (1, False)

    Args:
        envs: The environments; at least one, none of them twice.
        autoreset: Whether an environment whose episode has ended begins another at once.
        num_threads: Threads that step environments side by side, for those whose `step` waits for a search or a
            grader; 0 steps them one after the other.

    Raises:
        BadArgumentError: If there is no environment, one is given twice, or `num_threads` is negative.
    """

    def __init__(self, envs: Sequence[AECEnv[str, Any, Any]], *, autoreset: bool = False, num_threads: int = 0) -> None:
        if not envs or len({id(env) for env in envs}) < len(envs):
            raise BadArgumentError(f"envs holds {len(envs)} environments; expected at least one, and each only once")
        if num_threads < 0:
            raise BadArgumentError(f"num_threads={num_threads!r}: expected 0 for none, or the number of threads")
        self.envs = tuple(envs)
        self.possible_agents: list[str] = list(envs[0].possible_agents)
        self.autoreset = autoreset
        self._threads = ThreadPoolExecutor(num_threads, "mas_envs-vector") if num_threads else None
        self._episodes: list[_Episode | None] = [None] * len(envs)
        self._shown: dict[int, Any] = {}
        self._results: list[EpisodeResult] = []

    def __len__(self) -> int:
        return len(self.envs)

    @property
    def results(self) -> list[EpisodeResult]:
        """The episodes that have ended since `reset`, in the order in which they did; a new list each time."""
        return list(self._results)

    @property
    def is_over(self) -> bool:
        """Whether no environment waits for an action; never with `autoreset`."""
        return all(episode is None or episode.is_over for episode in self._episodes)

    def reset(self, seed: int | None = None, options: Options | Sequence[Options] = None) -> None:
        """Begin an episode in every environment and forget all results.

        Args:
            seed: Each environment gets a seed of its own, made from this one and its index; None leaves them unseeded.
            options: Options of every environment, or a sequence with those of each.

        Raises:
            BadArgumentError: If there are not as many options as environments.
        """
        each = [options] * len(self) if options is None or isinstance(options, Mapping) else list(options)
        if len(each) != len(self):
            raise BadArgumentError(
                f"options has {len(each)} entries for {len(self)} environments; expected one for each"
            )
        seeds = [None if seed is None else env_seed(seed, index) for index in range(len(self))]
        self._results, self._shown = [], {}
        self._episodes = [_Episode(env, index, 0, seeds[index]) for index, env in enumerate(self.envs)]
        self._run({i: functools.partial(self._begin, i, each[i]) for i in range(len(self))})

    def pending(self) -> dict[str, Pending]:
        """Agent id -> the environments in which it is to act and what it is shown; agents without a turn are absent.

        Raises:
            EpisodeOrderError: Before `reset`.
        """
        waiting: dict[str, list[int]] = {}
        for index in range(len(self)):
            if (agent_id := self._speaker(index)) is not None:
                waiting.setdefault(agent_id, []).append(index)
        return {
            agent_id: Pending(tuple(indices), tuple(self._observation(index) for index in indices))
            for agent_id, indices in waiting.items()
        }

    def step(self, actions: Mapping[int, Any] | Mapping[str, Sequence[Any]]) -> list[EpisodeResult]:
        """Take a turn in some of the environments.

        Args:
            actions: Environment index -> action of the agent whose turn it is; or agent id -> actions, one for each of
                `pending()[agent_id].env_indices`, in that order. Environments left out keep waiting.

        Returns:
            The episodes that ended by this, ordered by environment.

        Raises:
            EpisodeOrderError: Before `reset`, or if an environment in `actions` waits for no action.
            InvalidActionError: If the actions of an agent are not as many as its pending turns.
            MasEnvsError: If environments failed; the others have taken their turns, and the first cause is attached.
        """
        by_index = self._by_index(actions)
        for index in by_index:
            if self._speaker(index) is None:
                raise EpisodeOrderError(f"environment {index} waits for no action; its episode has ended: reset()")
        ended = self._run({i: functools.partial(self._turn, i, action) for i, action in by_index.items()})
        finished = [ended[index] for index in sorted(ended) if ended[index] is not None]
        results = cast("list[EpisodeResult]", finished)
        self._results.extend(results)
        return results

    def close(self) -> None:
        """Close every environment and stop the threads; may be called any number of times."""
        if self._threads is not None:
            self._threads.shutdown()
        for env in self.envs:
            env.close()

    def _by_index(self, actions: Mapping[int, Any] | Mapping[str, Sequence[Any]]) -> dict[int, Any]:
        by_index: dict[int, Any] = {}
        pending: dict[str, Pending] | None = None
        for key, value in actions.items():
            if not isinstance(key, str):
                by_index[self._checked(key)] = value
                continue
            pending = self.pending() if pending is None else pending
            indices = pending[key].env_indices if key in pending else ()
            if isinstance(value, str) or len(value) != len(indices):
                given = "a single str" if isinstance(value, str) else f"{len(value)} actions"
                raise InvalidActionError(
                    f"{given} for {key!r}, which has {len(indices)} pending turns; expected a list with one for each "
                    "of pending()[agent_id].env_indices"
                )
            by_index.update(zip(indices, value, strict=True))
        return by_index

    def _checked(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise InvalidActionError(f"environment {index!r} of actions: expected 0 to {len(self) - 1}")
        return int(index)

    def _speaker(self, index: int) -> str | None:
        episode = self._episodes[index]
        if episode is None:
            raise EpisodeOrderError("the environments have not begun; call reset() first")
        return None if episode.is_over else cast("str", episode.env.agent_selection)

    def _observation(self, index: int) -> Any:
        if index not in self._shown:
            env = self.envs[index]
            self._shown[index] = env.observe(env.agent_selection)
        return self._shown[index]

    def _begin(self, index: int, options: Options) -> None:
        episode = self._episodes[index]
        assert episode is not None
        episode.begin(dict(options) if options is not None else None)

    def _turn(self, index: int, action: Any) -> EpisodeResult | None:
        episode = self._episodes[index]
        assert episode is not None
        episode.turn(action)
        self._shown.pop(index, None)
        if not episode.is_over:
            return None
        if self.autoreset:
            following = _Episode(episode.env, index, episode.episode_index + 1, None)
            following.begin(None)
            self._episodes[index] = following
        return episode.result()

    def _run(self, calls: Mapping[int, Callable[[], Any]]) -> dict[int, Any]:
        """What each call returned, all of them made even if one fails."""
        outcomes: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        run = map if self._threads is None else self._threads.map
        for index, (result, failure) in zip(calls, run(_outcome, calls.values()), strict=True):
            outcomes[index] = result
            if failure is not None:
                failures[index] = failure
        if failures:
            first = failures[min(failures)]
            raise MasEnvsError(
                f"environment {', '.join(map(str, sorted(failures)))} failed ({type(first).__name__}: {first}); the "
                "others have taken their turns"
            ) from first
        return outcomes


class _Episode:
    """One episode in one environment: its returns, and its dead steps taken as soon as agents end."""

    def __init__(self, env: AECEnv[str, Any, Any], env_index: int, episode_index: int, seed: int | None) -> None:
        self.env = env
        self.env_index = env_index
        self.episode_index = episode_index
        self.seed = seed
        self.is_over = False
        self._returns: dict[str, float] = {}
        self._num_turns = 0
        self._truncated = False
        self._info: dict[str, Any] = {}

    def begin(self, options: dict[str, Any] | None) -> None:
        self.env.reset(seed=self.seed, options=options)
        self._returns = {agent_id: float(reward) for agent_id, reward in self.env.rewards.items()}
        self._drain()

    def turn(self, action: Any) -> None:
        self.env.step(action)
        self._num_turns += 1
        for agent_id, reward in self.env.rewards.items():
            self._returns[agent_id] = self._returns.get(agent_id, 0.0) + float(reward)
        self._drain()

    def result(self) -> EpisodeResult:
        return EpisodeResult(
            env_index=self.env_index,
            episode_index=self.episode_index,
            seed=self.seed,
            task_id=self._info.get("task_id"),
            returns=self._returns,
            num_turns=self._num_turns,
            success=self._info.get("success"),
            truncated=self._truncated,
            error=self._info.get("error"),
        )

    def _drain(self) -> None:
        env = self.env
        while env.agents:
            agent_id = env.agent_selection
            if not (env.terminations[agent_id] or env.truncations[agent_id]):
                return
            self._truncated = self._truncated or bool(env.truncations[agent_id])
            self._info.update({name: value for name, value in env.infos[agent_id].items() if value is not None})
            env.step(None)
        self.is_over = True


def env_seed(seed: int, env_index: int) -> int:
    """The seed of one environment: different for each index and each `seed`, and the same in every process.

    >>> env_seed(0, 0) == env_seed(0, 0), env_seed(0, 1) == env_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence((seed, env_index)).generate_state(1, np.uint64)[0] >> 1)


def make_vec(
    id: str | EnvSpec,
    n: int,
    *,
    autoreset: bool = False,
    num_threads: int = 0,
    wrap: Callable[[AECEnv[str, Any, Any]], AECEnv[str, Any, Any]] | None = None,
    **kwargs: Any,
) -> VectorConversation:
    """`n` environments of one id, stepped together.

    Args:
        id: As in `mas_envs.make`.
        n: Number of environments, at least 1.
        autoreset: Whether an environment whose episode has ended begins another at once.
        num_threads: Threads for environments whose `step` waits; 0 for none.
        wrap: Put around each environment, such as `lambda env: TurnLimit(env, 6)`.
        **kwargs: Arguments of the environment.

    Raises:
        BadArgumentError: If `n` is not an integer of at least 1.
    """
    if not isinstance(n, int) or n < 1:
        raise BadArgumentError(f"n={n!r}: expected an integer of at least 1, the number of environments")
    if "tasks" in kwargs:
        kwargs["tasks"] = load_tasks(kwargs["tasks"])  # once for all
    envs = [make(id, **kwargs) for _ in range(n)]
    return VectorConversation(
        [env if wrap is None else wrap(env) for env in envs], autoreset=autoreset, num_threads=num_threads
    )


def _outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as failure:  # noqa: BLE001  # reported together, after all environments have had their turn
        return None, failure
