"""What every training command does before torch is imported."""

import os

from mas_envs.errors import MissingExtraError

__all__ = ["need_torch", "quiet_threads"]


def quiet_threads() -> None:
    """Let waiting OpenMP threads sleep, or a busy neighbour makes a step many times slower."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def need_torch() -> None:
    """Import what training needs.

    Raises:
        MissingExtraError: If something is not installed; names the extra.
    """
    try:
        import peft  # noqa: F401
        import safetensors  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"training needs {error.name}; pip install 'mas-envs[train]'") from error
