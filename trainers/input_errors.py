"""The error that the array functions of this package raise for input they cannot use."""

from mas_envs.errors import MasEnvsError

__all__ = ["TrainingInputError"]


class TrainingInputError(MasEnvsError, ValueError):
    """An argument that cannot be used: what was wrong, what was expected, what to do now.

    >>> str(TrainingInputError("eps is 0.0", "a positive number", "pass eps=1e-6"))
    'eps is 0.0; expected a positive number; pass eps=1e-6'
    """

    def __init__(self, wrong: str, expected: str, advice: str) -> None:
        super().__init__(f"{wrong}; expected {expected}; {advice}")
