"""Fixtures of the trainer's tests."""

from pathlib import Path

import pytest

from tests.trainers.tiny_team import make_tiny_folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformers folder with a one-layer model and a tokenizer for MathLoop-v0."""
    return make_tiny_folder(tmp_path_factory.mktemp("model") / "tiny")
