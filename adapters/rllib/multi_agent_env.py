"""RLlib's `MultiAgentEnv` over our environments, right in every ending that RLlib's own bridge loses or crashes on."""

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
from pettingzoo import AECEnv

import mas_envs
from adapters.rllib.ray_parts import MultiAgentEnv
from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError
from mas_envs.wrappers import PhraseTokenizer, TokenEncoding

__all__ = ["TeamEnv"]

_TAKEN = (gymnasium.spaces.Box, gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete)
_LENGTHS = ("max_prompt_tokens", "max_new_tokens")


class TeamEnv(MultiAgentEnv):
    r"""An AEC environment as RLlib wants it: observations for who must act next, rewards when it has acted.

    Give the class to `config.environment(TeamEnv, env_config={...})`; checkpoints then restore without a registry.

    RLlib keeps no reward that comes with an agent's first observation: it is added to the agent's first transition. A
    reward of an agent that never acts is in `infos["__common__"]["reward_without_a_turn"]`. An agent that ends while
    no other is known yet is reported when another is, because RLlib would end the episode. When everybody has ended
    and one was truncated, RLlib's episode is truncated; agents that terminated are marked so, and get no bootstrap.

    >>> env = TeamEnv({"id": "MathLoop-v0", "max_prompt_tokens": 64, "max_new_tokens": 8})
    >>> observations, infos = env.reset(seed=1)
    >>> list(observations), infos["solver_0"]["task_id"]
    (['solver_0'], 'arithmetic-2/9+37')
    >>> list(env.step({"solver_0": env.aec.tokenizer.eos_token_id})[0])
    ['verifier_0']

    Args:
        config: `id` and `kwargs` for `mas_envs.make`, or `env`, an AEC environment that is copied. With
            `max_prompt_tokens` and `max_new_tokens` a `TokenEncoding` makes token ids of messages and text, by
            `tokenizer`, or by a `PhraseTokenizer` of `phrases`; without, the spaces stay as they are.

    Raises:
        BadArgumentError: If a key is unknown, missing or of the wrong type, or RLlib cannot take the spaces.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.aec = _build(dict(config))
        ids = list(self.aec.possible_agents)
        self.possible_agents, self.agents = ids, list(ids)
        self.observation_spaces = {agent: self.aec.observation_space(agent) for agent in ids}
        self.action_spaces = {agent: self.aec.action_space(agent) for agent in ids}
        for agent in ids:
            _check_spaces(agent, self.observation_spaces[agent], self.action_spaces[agent])
        self.observation_space = gymnasium.spaces.Dict(self.observation_spaces)
        self.action_space = gymnasium.spaces.Dict(self.action_spaces)
        self.metadata = dict(self.aec.metadata)  # RLlib writes into it
        self.render_mode = getattr(self.aec, "render_mode", None)
        self._shown: set[str] | None = None
        self._early: dict[str, float] = {}
        self._ended: dict[str, tuple[bool, bool]] = {}
        self._held: dict[str, tuple[Any, float, bool, bool, dict[str, Any]]] = {}
        super().__init__()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The first agent's observation and info.

        Raises:
            EpisodeOrderError: If everybody has ended before anybody could act.
        """
        self.aec.reset(seed=seed, options=options)
        self._shown, self._early, self._ended, self._held = set(), {}, {}, {}
        first = self._until_next_turn()
        if not first.observations:
            raise EpisodeOrderError(
                f"{self.aec} had no agent left after reset(); expected one that acts: RLlib takes no episode without a "
                "turn, so let the environment draw another task"
            )
        return first.observations, first.infos

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play the selected agent's action, and everything until the next agent that must act.

        Args:
            actions: Agent id -> action; only that of the agent whose turn it is counts.

        Raises:
            EpisodeOrderError: Before `reset` or after the end of the episode.
            InvalidActionError: If the agent whose turn it is has no action, or one of the wrong type.
        """
        if self._shown is None or not self.aec.agents:
            when = "before reset()" if self._shown is None else "after the end of the episode"
            raise EpisodeOrderError(f"step() of TeamEnv {when}; expected a running episode: call reset() first")
        actor = self.aec.agent_selection
        if not isinstance(actions, Mapping) or actor not in actions:
            raise InvalidActionError(
                f"actions {actions!r:.80} have none for {actor}; expected a mapping with one for the agent whose turn "
                "it is, the one that was last shown something"
            )
        known = set(self._shown)
        self.aec.step(actions[actor])
        moved = self._until_next_turn()
        over = not self.aec.agents
        if over or known - set(self._ended):  # else RLlib would end the whole episode
            for agent, (observation, reward, terminated, truncated, info) in self._held.items():
                moved.add(agent, observation, info, reward, terminated, truncated and not over)
            self._held = {}
        cut = over and any(truncated and not terminated for terminated, truncated in self._ended.values())
        moved.terminated["__all__"], moved.truncated["__all__"] = over and not cut, cut
        if over and self._early:
            moved.infos["__common__"] = {"reward_without_a_turn": dict(self._early)}
        return moved.observations, moved.rewards, moved.terminated, moved.truncated, moved.infos

    def render(self) -> Any:
        """What the environment renders."""
        return self.aec.render()

    def close(self) -> None:
        """Close the environment."""
        self.aec.close()

    def _until_next_turn(self) -> "_Moved":
        """Let agents that have ended leave; stop at the first that must act."""
        assert self._shown is not None
        moved = _Moved()
        while self.aec.agents:
            agent = self.aec.agent_selection
            observation, reward, terminated, truncated, info = self.aec.last()
            if not (terminated or truncated):
                moved.add(agent, observation, dict(info), None, False, False)
                if agent in self._shown:
                    moved.rewards[agent] = float(reward) + self._early.pop(agent, 0.0)
                else:
                    self._early[agent] = float(reward)
                    self._shown.add(agent)
                break
            self._ended[agent] = (bool(terminated), bool(truncated))
            self.aec.step(None)
            if agent in self._shown:
                total = float(reward) + self._early.pop(agent, 0.0)
                self._held[agent] = (observation, total, bool(terminated), bool(truncated), dict(info))
            else:
                self._early[agent] = self._early.get(agent, 0.0) + float(reward)
        return moved


class _Moved:
    """What a step gives back, agent by agent."""

    def __init__(self) -> None:
        self.observations: dict[str, Any] = {}
        self.rewards: dict[str, float] = {}
        self.terminated: dict[str, bool] = {}
        self.truncated: dict[str, bool] = {}
        self.infos: dict[str, Any] = {}

    def add(  # what Gymnasium's step returns, for one agent
        self,
        agent: str,
        observation: Any,
        info: dict[str, Any],
        reward: float | None,
        terminated: bool,
        truncated: bool,
    ) -> None:
        self.observations[agent], self.infos[agent] = observation, info
        self.terminated[agent], self.truncated[agent] = terminated, truncated
        if reward is not None:
            self.rewards[agent] = reward


def _build(config: dict[str, Any]) -> AECEnv[str, Any, Any]:
    env, env_id, kwargs = config.pop("env", None), config.pop("id", None), config.pop("kwargs", {})
    phrases, tokenizer = config.pop("phrases", None), config.pop("tokenizer", None)
    lengths = {name: config.pop(name) for name in _LENGTHS if name in config}
    if config:
        raise BadArgumentError(
            f"env_config has {', '.join(map(repr, config))}; expected env or id, kwargs, phrases or tokenizer, "
            "max_prompt_tokens and max_new_tokens"
        )
    if (env is None) == (env_id is None) or (kwargs and env_id is None):
        raise BadArgumentError(
            f"env_config has env={env!r:.80}, id={env_id!r} and kwargs={kwargs!r:.80}; expected either 'id', with "
            "'kwargs' for make, or 'env', an environment that is there already"
        )
    if env is not None and not isinstance(env, AECEnv):
        raise BadArgumentError(
            f"env_config['env']={env!r:.80} is a {type(env).__name__}; expected a PettingZoo AECEnv, such as "
            "mas_envs.make returns"
        )
    is_encoded = bool(lengths) or phrases is not None or tokenizer is not None
    if is_encoded and (len(lengths) < len(_LENGTHS) or (phrases is not None and tokenizer is not None)):
        raise BadArgumentError(
            f"env_config has lengths {lengths!r}, phrases={phrases!r:.40} and tokenizer={tokenizer!r:.40}; expected "
            "both max_prompt_tokens and max_new_tokens, and at most one of phrases and tokenizer"
        )
    # RLlib plays many copies in one process, all built from the same configuration
    built: AECEnv[str, Any, Any] = mas_envs.make(env_id, **kwargs) if env is None else copy.deepcopy(env)
    if not is_encoded:
        return built
    return TokenEncoding(built, PhraseTokenizer(phrases) if phrases is not None else tokenizer, **lengths)


def _check_spaces(agent: str, observation: Any, action: Any) -> None:
    if isinstance(observation, _TAKEN) and isinstance(action, _TAKEN):
        return
    wrong = observation if not isinstance(observation, _TAKEN) else action
    raise BadArgumentError(
        f"{agent} has the space {wrong!r:.80}, which no RLlib module takes; expected token ids: put max_prompt_tokens"
        " and max_new_tokens into env_config, so that the environment is wrapped in TokenEncoding"
    )
