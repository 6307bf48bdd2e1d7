"""Trains teams of LLM agents: `Trainer`, its settings, and the algorithms behind it.

Names are loaded when they are first used, so that `import trainers` needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.advantages import compute_advantages
    from trainers.config import Settings, load_settings
    from trainers.trainer import RunResult, Trainer

__all__ = ["RunResult", "Settings", "Trainer", "compute_advantages", "load_settings"]

_HOMES = {
    "RunResult": "trainers.trainer",
    "Settings": "trainers.config",
    "Trainer": "trainers.trainer",
    "compute_advantages": "trainers.advantages",
    "load_settings": "trainers.config",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainers' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)
