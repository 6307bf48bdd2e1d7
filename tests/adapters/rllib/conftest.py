"""Gymnasium's registry is left as it was: RLlib writes one name into it."""

from collections.abc import Iterator

import gymnasium
import pytest


@pytest.fixture(autouse=True)
def unchanged_registry() -> Iterator[None]:
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
