"""Keeps libraries from drawing progress bars of their own over ours."""

import contextlib
from collections.abc import Iterator

from transformers.utils import logging as transformers_logging

__all__ = ["no_progress_bars"]


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Inside, transformers draws no bars; its setting is restored afterwards."""
    was_on = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            transformers_logging.enable_progress_bar()
