"""Gymnasium: one agent of a team as a `gymnasium.Env`, its team-mates played by policies.

`gymnasium.make("mas_envs:MathLoop-v0")` builds the same; the built-in ids are in Gymnasium's registry, and
`register_envs()` adds those of plug-ins and your own.
"""

import random
from collections.abc import Mapping
from typing import Any

import gymnasium
from pettingzoo import AECEnv

import mas_envs
from mas_envs.agent_keys import roles_of
from mas_envs.argument_checks import check_speaks_text
from mas_envs.conversation import Skill
from mas_envs.errors import BadArgumentError, EpisodeOrderError, MasEnvsError
from mas_envs.policies import AgentPolicy, assign_policies
from mas_envs.registration import mirror_into_gymnasium
from mas_envs.wrappers import SingleAgentView, TokenEncoding

__all__ = ["AgentEnv", "make_agent_env", "register_envs"]

_MOST_DRAWS = 1000
"""Episodes in a row that `skip_without_turn` draws before it gives up."""


class AgentEnv(gymnasium.Env[Any, Any]):
    r"""One agent's side of a team environment; a step is one turn of that agent and all turns until its next.

    Observations are `{"messages": (...)}` and actions text, or token ids both with `tokens`. The reward of a step is
    what the agent earned from its turn until its next or the end of the episode, whoever's turn brought it; what it
    earned before its first turn is in the first step. The episode ends when the whole team's has.

    Infos are those of the agent, and `has_turn`: whether it is to act. An episode may end before the agent has had a
    turn; then `has_turn` is false after `reset`, and the one step that is left takes no notice of its action and gives
    what the agent earned. `success` is there only at the end, when it is known.

    >>> env = AgentEnv(mas_envs.make("MathLoop-v0"), agent="solver")
    >>> observation, info = env.reset(seed=1, options={"task": mas_envs.Task("t", "17+25", "42")})
    >>> observation, reward, terminated, truncated, info = env.step(r"\boxed{42}")
    >>> reward, terminated, info["success"]
    (1.0, True, True)

    Args:
        env: An AEC environment whose observations hold `messages` and whose actions are text.
        agent: The agent that is left to act, or its role; None is the first.
        policies: Agent id, role or pattern -> what plays the others, as in `mas_envs.play`: a callable from messages to
            text, or a `Skill` for a scripted expert. Those that no key names are perfect scripted experts.
        tokens: Arguments of `TokenEncoding`, such as `{"max_prompt_tokens": 128, "max_new_tokens": 16}`: the agent is
            shown token ids and plays one token a step. None leaves messages and text.
        skip_without_turn: Whether `reset` draws again when an episode ends before the agent's first turn and no task
            was chosen; `num_skipped` in its info says how often it did.

    Raises:
        BadArgumentError: If there is no such agent, or another has neither policy nor expert.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "ansi"], "render_fps": 1}  # noqa: RUF012  # declared by Gymnasium

    def __init__(
        self,
        env: AECEnv[Any, Any, Any],
        *,
        agent: str | None = None,
        policies: Mapping[str, AgentPolicy | Skill] | None = None,
        tokens: Mapping[str, Any] | None = None,
        skip_without_turn: bool = False,
    ) -> None:
        if not isinstance(env, AECEnv):
            raise BadArgumentError(
                f"env={env!r:.80}: expected an AEC environment; make one with mas_envs.make, or give the id to "
                "gymnasium.make as 'mas_envs:<id>'"
            )
        check_speaks_text(env, "AgentEnv")
        self.team_env = env
        """The environment with all agents."""
        self.agent_id = _chosen_agent(env, agent)
        """The agent that is left to act."""
        self._experts_rng = random.Random()
        mates = assign_policies(env, policies or {}, self._experts_rng, leave=self.agent_id)
        view = SingleAgentView(env, self.agent_id, mates)
        self._view: AECEnv[Any, Any, Any] = view if tokens is None else TokenEncoding(view, **tokens)
        self.observation_space = self._view.observation_space(self.agent_id)
        self.action_space = self._view.action_space(self.agent_id)
        self.metadata = {**self.metadata, "render_modes": list(env.metadata.get("render_modes", []))}
        self.render_mode = getattr(env, "render_mode", None)
        self._skip_without_turn = skip_without_turn
        self._has_turn = False
        self._is_running = False
        self._early: tuple[float, dict[str, float]] = (0.0, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and let the others speak until it is the agent's turn.

        Args:
            seed: Seeds the episode and the scripted experts; None goes on in their streams.
            options: `{"task": task_or_index}` chooses the task; otherwise one is drawn.

        Raises:
            PolicyError: If another agent's policy raises or returns no `str`.
            MasEnvsError: With `skip_without_turn`, if the agent never comes to its turn.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._experts_rng.seed(f"{seed}/experts")
        self._is_running = False
        num_skipped = self._draw(seed, options)
        _, reward, _, _, info = self._view.last(observe=False)
        self._early = (float(reward), dict(info.get("reward_terms", {})))
        self._is_running = True
        skipped = {"num_skipped": num_skipped} if self._skip_without_turn else {}
        return self._view.observe(self.agent_id), {**self._info(info), **skipped}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the agent's turn, and let the others speak until it is its turn again or the episode is over.

        Raises:
            EpisodeOrderError: Before `reset` or after the end of the episode.
            InvalidActionError: If the action is no text (no token id); nothing has changed then.
            PolicyError: If another agent's policy raises or returns no `str`; the episode is given up.
        """
        if not self._is_running:
            raise EpisodeOrderError(f"step() of {self} outside an episode; call reset() first")
        early, early_terms = (0.0, {}) if not self._has_turn else self._early
        if self._has_turn:
            self._view.step(action)
        _, reward, terminated, truncated, info = self._view.last(observe=False)
        self._early = (0.0, {})
        self._has_turn = self._is_running = not (terminated or truncated)
        if early_terms:
            terms = dict(info.get("reward_terms", {}))
            info = {**info, "reward_terms": {**early_terms, **{k: early_terms.get(k, 0.0) + terms[k] for k in terms}}}
        observation = self._view.observe(self.agent_id)
        return observation, float(reward) + early, bool(terminated), bool(truncated), self._info(info)

    def render(self) -> Any:
        """The last turn as text (`ansi`), or written to the terminal (`human`)."""
        return self._view.render()

    def close(self) -> None:
        """Close the environment inside; may be called any number of times."""
        self._view.close()

    def _draw(self, seed: int | None, options: dict[str, Any] | None) -> int:
        """Begin an episode; how many were passed over because the agent had no turn in them."""
        may_skip = self._skip_without_turn and (options or {}).get("task") is None
        for num_skipped in range(_MOST_DRAWS):
            self._view.reset(seed=seed if num_skipped == 0 else None, options=options)
            _, _, terminated, truncated, _ = self._view.last(observe=False)
            self._has_turn = not (terminated or truncated)
            if self._has_turn or not may_skip:
                return num_skipped
        raise MasEnvsError(
            f"{self.agent_id} had no turn in {_MOST_DRAWS} episodes in a row; expected one that reaches it: change the "
            "policies of the others, or leave skip_without_turn out"
        )

    def _info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """The agent's infos; what nobody knows is left out, for Gymnasium's vector infos would make False of None."""
        known = {name: value for name, value in info.items() if name != "success" or value is not None}
        return {**known, "has_turn": self._has_turn}


def make_agent_env(
    env_id: str,
    *,
    agent: str | None = None,
    policies: Mapping[str, AgentPolicy | Skill] | None = None,
    tokens: Mapping[str, Any] | None = None,
    skip_without_turn: bool = False,
    **kwargs: Any,
) -> AgentEnv:
    """One agent's view of a registered environment: what `gymnasium.make` calls.

    Args:
        env_id: As in `mas_envs.make`.
        agent: As in `AgentEnv`, like the next three.
        policies: What plays the others.
        tokens: Arguments of `TokenEncoding`.
        skip_without_turn: Whether episodes without a turn are drawn again.
        **kwargs: Arguments of the environment.
    """
    env = mas_envs.make(env_id, **kwargs)
    return AgentEnv(env, agent=agent, policies=policies, tokens=tokens, skip_without_turn=skip_without_turn)


def register_envs() -> None:
    """Add every id of mas_envs, those of plug-ins and your own included, to Gymnasium's registry.

    Ids that Gymnasium knows already are left as they are.
    """
    mas_envs.registry.load_plugins()
    mirror_into_gymnasium(mas_envs.registry)


def _chosen_agent(env: AECEnv[Any, Any, Any], agent: str | None) -> str:
    if agent is None:
        return str(env.possible_agents[0])
    role_of = roles_of(env)
    fitting = [agent] if agent in role_of else [agent_id for agent_id, role in role_of.items() if role == agent]
    if len(fitting) != 1:
        raise BadArgumentError(
            f"agent={agent!r}: expected one agent, or a role that one agent has; choose among {', '.join(role_of)}"
        )
    return fitting[0]
