"""The error classes: one base, and the builtin that fits."""

import inspect

import pytest

from mas_envs import errors
from mas_envs.errors import MasEnvsError

OWN = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls is not MasEnvsError]


@pytest.mark.parametrize("error", OWN, ids=lambda error: error.__name__)
def test_own_error_shares_the_base_and_is_a_builtin_too(error: type[Exception]) -> None:
    assert issubclass(error, MasEnvsError)
    assert any(base.__module__ == "builtins" and base is not Exception for base in error.__bases__)
    assert error.__name__ in errors.__all__
    assert error.__doc__


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.BadArgumentError, ValueError),
        (errors.InvalidActionError, TypeError),
        (errors.EpisodeOrderError, RuntimeError),
        (errors.TaskError, ValueError),
        (errors.GradingError, RuntimeError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_error_is_caught_by_its_builtin(error: type[Exception], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="what to do"):
        raise error("what to do")
