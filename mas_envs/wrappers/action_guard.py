"""`ActionGuard`: whatever a model writes, an environment that does not sanitise gets clean text."""

from typing import Any

from pettingzoo import AECEnv

from mas_envs.actions import mend_text
from mas_envs.errors import BadArgumentError, InvalidActionError
from mas_envs.wrappers.transparent import Transparent

__all__ = ["ActionGuard"]


class ActionGuard(Transparent):
    """Cuts over-long actions, replaces what cannot be encoded, and refuses what is not text.

    For text environments of others; those built on `ConversationEnv` do this themselves. Every agent's infos get one
    more key, `action_cut`: whether its last action was shortened or mended.

    >>> import mas_envs
    >>> env = ActionGuard(mas_envs.make("MathLoop-v0"), max_chars=5)
    >>> env.reset(seed=0)
    >>> env.step("far too long")
    >>> env.unwrapped.transcript[0].text, env.infos["solver_0"]["action_cut"]
    ('far t', True)

    Args:
        env: An AEC environment that takes text.
        max_chars: Longer actions are cut to this length.

    Raises:
        BadArgumentError: If `max_chars` is below 1.
    """

    def __init__(self, env: AECEnv[str, Any, Any], *, max_chars: int = 65_536) -> None:
        if not isinstance(max_chars, int) or max_chars < 1:
            raise BadArgumentError(f"max_chars={max_chars!r}: expected an integer of at least 1")
        super().__init__(env)
        self.max_chars = max_chars
        self._cut: dict[str, bool] = {}

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """Infos of the environment inside, with `action_cut`."""
        return {
            agent_id: {**info, "action_cut": self._cut.get(agent_id, False)}
            for agent_id, info in self.env.infos.items()
        }

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; no action has been cut."""
        self._cut = {}
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        """Pass on the action as clean text of permitted length.

        Raises:
            InvalidActionError: If it is not a string, or not None for an agent that has ended; nothing has changed.
        """
        if not self.is_running:
            self.env.step(action)
            return
        agent_id = self.env.agent_selection
        if self.env.terminations.get(agent_id) or self.env.truncations.get(agent_id):
            if action is not None:
                raise InvalidActionError(
                    f"action {action!r:.80} for {agent_id}, which has ended; the only action it can take is None"
                )
            self.env.step(None)
            return
        if not isinstance(action, str):
            raise InvalidActionError(
                f"action {action!r:.80} of type {type(action).__name__} for {agent_id}; expected a str; decode token "
                "ids before you call step()"
            )
        text, fault = mend_text(action, self.max_chars)
        self.env.step(text)
        self._cut[agent_id] = fault is not None
