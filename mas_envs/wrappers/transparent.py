"""`Transparent`: the base of wrappers that show the books of the environment inside as they are."""

from typing import Any

from pettingzoo.utils.wrappers import BaseWrapper

__all__ = ["Transparent"]


class Transparent(BaseWrapper[str, Any, Any]):
    """A wrapper that leaves calls out of order to the environment inside, whose error says what is wrong.

    PettingZoo's `BaseWrapper` looks up the selected agent first, and fails with an AttributeError or a KeyError.
    """

    @property
    def is_running(self) -> bool:
        """Whether an episode has begun and some agent is still in it."""
        return bool(getattr(self.env, "agents", None))

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last turn, terminated, truncated and info of the selected agent."""
        result: tuple[Any, float, bool, bool, dict[str, Any]]
        result = super().last(observe) if self.is_running else self.env.last(observe)
        return result
