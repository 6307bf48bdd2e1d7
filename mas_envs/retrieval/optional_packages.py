"""Imports of what only the extra `mas-envs[search]` brings; a missing package is one sentence naming it."""

import importlib
from typing import Any

from mas_envs.errors import MissingExtraError

__all__ = ["need"]


def need(module: str, purpose: str, extra: str = "search") -> Any:  # Any: foreign modules without types
    """The imported module.

    Args:
        module: What to import.
        purpose: What it is needed for, as the subject of a sentence.
        extra: The extra that brings it.

    Raises:
        MissingExtraError: If it is not installed; names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs {error.name or module}; pip install 'mas-envs[{extra}]'") from error
