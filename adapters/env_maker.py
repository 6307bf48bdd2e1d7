"""`env_maker`: what builds the environments of an adapter that needs several of the same kind."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from pettingzoo import AECEnv

import mas_envs
from mas_envs.errors import BadArgumentError

__all__ = ["env_maker"]


def env_maker(
    env: str | Callable[[], AECEnv[Any, Any, Any]], arguments: Mapping[str, Any]
) -> Callable[[], AECEnv[Any, Any, Any]]:
    """A function that builds one more environment.

    Args:
        env: An id as in `mas_envs.make`, or a function that builds an environment.
        arguments: Arguments of the environment; only with an id.

    Raises:
        BadArgumentError: If `env` is neither, or a function comes with arguments.
    """
    if isinstance(env, str):
        return functools.partial(mas_envs.make, env, **arguments)
    if callable(env) and not arguments:
        return env
    raise BadArgumentError(
        f"env={env!r:.80} with arguments {dict(arguments)!r:.80}: expected an id with its arguments, or a function "
        "that builds an environment without any: give the id, or put the arguments into the function"
    )
