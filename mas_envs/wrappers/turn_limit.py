"""`TurnLimit`: the episode is truncated after a number of turns."""

from typing import Any

from pettingzoo import AECEnv

from mas_envs.errors import BadArgumentError, InvalidActionError
from mas_envs.wrappers.own_books import OwnBooks

__all__ = ["TurnLimit"]


class TurnLimit(OwnBooks):
    """Truncates the episode for every agent once `max_turns` turns have been taken and it has not ended by itself.

    For environments without a `max_turns` of their own. Rewards and infos of the last turn are kept; the environment
    inside is left in mid-episode until the next `reset`.

    >>> import mas_envs
    >>> env = TurnLimit(mas_envs.make("MathLoop-v0", max_loops=9), max_turns=1)
    >>> env.reset(seed=0)
    >>> env.step("I do not know")
    >>> env.truncations
    {'solver_0': True, 'verifier_0': True}

    Args:
        env: Any AEC environment.
        max_turns: Turns of all agents together, at least 1; steps of agents that have ended do not count.

    Raises:
        BadArgumentError: If `max_turns` is not an integer of at least 1.
    """

    def __init__(self, env: AECEnv[str, Any, Any], max_turns: int) -> None:
        if not isinstance(max_turns, int) or max_turns < 1:
            raise BadArgumentError(
                f"max_turns={max_turns!r}: expected an integer of at least 1; leave TurnLimit out instead"
            )
        super().__init__(env)
        self.max_turns = max_turns
        self._num_turns = 0
        self._is_cut = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode and count from 0."""
        super().reset(seed=seed, options=options)
        self._num_turns = 0
        self._is_cut = False

    def step(self, action: Any) -> None:
        """Take the selected agent's turn; the last one within the limit truncates the episode.

        Raises:
            InvalidActionError: If the agent has been cut off and the action is not None.
        """
        self._check_running("step")
        agent_id = self.agent_selection
        if self._is_cut:
            if action is not None:
                raise InvalidActionError(
                    f"action {action!r:.80} for {agent_id}, which has ended; the only action it can take is None"
                )
            self._was_dead_step(action)
            return
        is_turn = not self._is_over(agent_id)
        self._step_inside(action)  # an action that is refused raises here, and is no turn
        self._num_turns += is_turn
        alive = [other for other in self.agents if not self._is_over(other)]
        if alive and self._num_turns >= self.max_turns:
            self._is_cut = True
            self.truncations.update(dict.fromkeys(alive, True))
            self._skip_agent_selection = None
            self._deads_step_first()
