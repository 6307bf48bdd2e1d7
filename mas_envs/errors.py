"""Errors this package raises; each also subclasses the builtin that fits, and says what was wrong and what to do."""

__all__ = [
    "BadArgumentError",
    "EpisodeOrderError",
    "GradingError",
    "InvalidActionError",
    "MasEnvsError",
    "MissingExtraError",
    "TaskError",
]


class MasEnvsError(Exception):
    """Base of every error that mas_envs, adapters and trainers raise on purpose."""


class BadArgumentError(MasEnvsError, ValueError):
    """An argument of the wrong type or out of range; names the argument, its value and what was expected."""


class InvalidActionError(MasEnvsError, TypeError):
    """An action that is not a string; the episode is left as it was."""


class EpisodeOrderError(MasEnvsError, RuntimeError):
    """A call that this moment of the episode does not allow, such as `step` before `reset`."""


class TaskError(MasEnvsError, ValueError):
    """A task, a task file or a task set that cannot be used; names file, line and field."""


class GradingError(MasEnvsError, RuntimeError):
    """The grader itself failed, as opposed to a wrong answer."""


class MissingExtraError(MasEnvsError, ImportError):
    """An optional dependency is not installed; names the extra that brings it."""
