"""Text spaces: any Unicode text belongs, samples are the same in every process."""

import copy
import os
import subprocess
import sys
from typing import Any

import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.spaces import UnicodeText, messages_space


@given(st.text(st.characters(), max_size=50))
def test_every_text_within_the_length_belongs(text: str) -> None:
    assert text in UnicodeText(50)
    assert (text in UnicodeText(10)) == (len(text) <= 10)


@pytest.mark.parametrize("value", [None, 4, b"bytes", ["a"], ("a",)])
def test_what_is_no_text_does_not_belong(value: object) -> None:
    assert value not in UnicodeText(50)


def test_too_short_text_does_not_belong() -> None:
    assert "a" not in UnicodeText(5, min_length=2)
    assert "ab" in UnicodeText(5, min_length=2)


@pytest.mark.parametrize("space", [UnicodeText(5), UnicodeText(9, min_length=9), UnicodeText(10_000, sample_length=8)])
def test_samples_belong_and_are_short(space: UnicodeText) -> None:
    samples = [space.sample() for _ in range(50)]
    assert all(sample in space and sample.isascii() for sample in samples)
    assert max(map(len, samples)) <= max(space.min_length, space.sample_length)
    assert len(set(samples)) > 10


def test_mask_fixes_the_length_of_a_sample() -> None:
    assert len(UnicodeText(100, seed=1).sample(mask=(7, None))) == 7


def test_equal_seeds_give_equal_samples_in_every_process() -> None:
    script = (
        "from mas_envs.spaces import UnicodeText; s = UnicodeText(40, seed=3); print([s.sample() for _ in range(5)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "77")
    }
    space = UnicodeText(40, seed=3)
    assert outputs == {repr([space.sample() for _ in range(5)])}


def test_spaces_are_equal_by_their_limits() -> None:
    assert UnicodeText(5) == UnicodeText(5, sample_length=3)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != spaces.Text(5)
    assert repr(UnicodeText(5, min_length=1)) == "UnicodeText(1, 5)"


def test_copied_space_samples_on_its_own() -> None:
    space = UnicodeText(40, seed=3)
    twin = copy.deepcopy(space)
    first = [space.sample() for _ in range(3)]
    assert [twin.sample() for _ in range(3)] == first


def test_message_space_takes_tuples_of_chat_messages_only() -> None:
    space: spaces.Space[Any] = messages_space(10, seed=0)
    message = {"role": "user", "content": "x² = 4"}
    assert space.contains({"messages": (message, message)})
    assert space.contains({"messages": ()})
    assert not space.contains({"messages": ({"role": "user"},)})
    assert not space.contains({"messages": ({"role": "", "content": "a"},)})
    assert not space.contains({"messages": ({"role": "user", "content": "a" * 11},)})
    assert space.contains(space.sample())
