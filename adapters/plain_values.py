"""`plain`: values as JSON has them, for records that leave the process."""

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """The value with numbers of numpy as numbers, tuples as lists, and anything else that JSON lacks as its repr.

    >>> plain({"reward": np.float32(0.5), "where": (np.int64(1), None), "grade": {1}})
    {'reward': 0.5, 'where': [1, None], 'grade': '{1}'}

    Args:
        value: Anything, such as the info of an agent.
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, str | int | float) else repr(value)
