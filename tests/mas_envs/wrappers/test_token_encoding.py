import copy
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError
from mas_envs.wrappers import ByteTokenizer, TokenEncoding, plain_prompt
from tests.mas_envs.wrappers.contract import APPROVE, REJECT, SOLUTION, WRONG, assert_passes_pettingzoo, math_loop, play

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


class Letters:
    """A foreign tokenizer with nothing but what the wrapper asks for: 26 letters and an end id, no padding id."""

    eos_token_id = 26

    def __len__(self) -> int:
        return 27

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 97 for letter in text.lower() if "a" <= letter <= "z"]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(97 + token) for token in token_ids)


def token_env(max_prompt_tokens: int = 32, max_new_tokens: int = 64, **kwargs: object) -> TokenEncoding:
    env = math_loop(**kwargs)
    return TokenEncoding(env, max_prompt_tokens=max_prompt_tokens, max_new_tokens=max_new_tokens)


def tokens_of(text: str) -> list[int]:
    return [*ByteTokenizer().encode(text), ByteTokenizer.eos_token_id]


def test_passes_the_tests_of_pettingzoo_without_any_warning() -> None:
    assert_passes_pettingzoo(token_env(max_new_tokens=3), benign=())


@given(TEXT)
def test_bytes_and_back_give_the_same_text(text: str) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.integers(0, 257)))
def test_any_ids_decode_to_text_that_can_be_encoded(token_ids: list[int]) -> None:
    assert ByteTokenizer().decode(token_ids).encode("utf-8") is not None


@given(st.text())
def test_ids_of_any_text_lie_between_the_special_ones_and_the_end(text: str) -> None:
    ids = ByteTokenizer().encode(text)
    assert all(2 <= token < len(ByteTokenizer()) for token in ids)


@given(TEXT.filter(lambda text: len(text.encode()) < 60))
def test_text_played_token_by_token_reaches_the_environment_unchanged(text: str) -> None:
    env = token_env()
    env.reset(seed=0)
    for token in tokens_of(text):
        env.step(token)
    assert [turn.text for turn in env.unwrapped.transcript] == [text]


def test_observation_holds_the_last_ids_of_the_prompt() -> None:
    env = token_env(max_prompt_tokens=8)
    env.reset(seed=0)
    text = plain_prompt(env.env.observe("solver_0")["messages"])
    expected = ByteTokenizer().encode(text)[-8:]
    assert env.observe("solver_0").tolist() == expected
    assert env.observe("solver_0") in env.observation_space("solver_0")
    assert env.observe("solver_0").dtype == np.int64


def test_observation_is_padded_on_the_left() -> None:
    env = TokenEncoding(math_loop(), max_prompt_tokens=9, max_new_tokens=4, render=lambda messages: "hi")
    env.reset(seed=0)
    env.step(5)
    assert env.observe("solver_0").tolist() == [0] * 6 + [*ByteTokenizer().encode("hi"), 5]


def test_tokens_so_far_are_shown_to_the_speaker_alone() -> None:
    env = TokenEncoding(math_loop(), max_prompt_tokens=4, max_new_tokens=9, render=lambda messages: "hi")
    env.reset(seed=0)
    before = env.observe("verifier_0").tolist()
    env.step(7)
    assert env.observe("solver_0").tolist()[-1] == 7
    assert env.observe("verifier_0").tolist() == before


def test_agent_keeps_its_turn_until_the_end_id() -> None:
    env = token_env()
    env.reset(seed=0)
    for token in ByteTokenizer().encode("ab"):
        env.step(token)
        assert env.agent_selection == "solver_0"
    env.step(ByteTokenizer.eos_token_id)
    assert env.agent_selection == "verifier_0"


def test_turn_ends_at_the_most_new_tokens() -> None:
    env = token_env(max_new_tokens=3)
    env.reset(seed=0)
    for token in ByteTokenizer().encode("abc"):
        env.step(token)
    assert env.unwrapped.transcript[0].text == "abc"


def test_end_id_is_not_part_of_the_text() -> None:
    env = TokenEncoding(math_loop(), Letters(), max_prompt_tokens=5, max_new_tokens=4)
    env.reset(seed=0)
    for token in [0, 1, Letters.eos_token_id]:
        env.step(token)
    assert env.unwrapped.transcript[0].text == "ab"


def test_agent_is_shown_what_has_been_said_since_its_last_turn() -> None:
    env = token_env(max_prompt_tokens=400)
    env.reset(seed=0)
    for agent_id in env.possible_agents:
        env.observe(agent_id)
    for token in tokens_of("hm"):
        env.step(token)
    for agent_id in env.possible_agents:
        prompt = ByteTokenizer().encode(plain_prompt(env.env.observe(agent_id)["messages"]))
        assert env.observe(agent_id).tolist() == ([0] * 400 + prompt)[-400:]


def test_end_id_alone_is_an_empty_turn() -> None:
    env = token_env()
    env.reset(seed=0)
    env.step(ByteTokenizer.eos_token_id)
    assert env.unwrapped.transcript[0].text == ""


@pytest.mark.parametrize("script", [[SOLUTION, APPROVE], [WRONG, REJECT, SOLUTION], ["", "", ""], [WRONG, "x", WRONG]])
@pytest.mark.parametrize("reward", ["team", "role"])
def test_returns_equal_those_of_whole_texts(script: list[str], reward: str) -> None:
    by_token, by_text = token_env(reward=reward), math_loop(reward=reward)
    by_token.reset(seed=0)
    by_text.reset(seed=0)
    assert play(by_token, [token for text in script for token in tokens_of(text)]) == play(by_text, script)


def test_no_reward_flows_within_a_turn() -> None:
    env = token_env()
    env.reset(seed=0)
    play_turns = [*tokens_of("no box"), *tokens_of(REJECT)]
    for token in play_turns:
        env.step(token)
    assert env.last()[1] == pytest.approx(-0.1)
    env.step(5)
    assert env.rewards == {"solver_0": 0.0, "verifier_0": 0.0}
    assert env.last()[1] == 0.0


def test_reward_terms_are_the_parts_of_the_reward_also_within_a_turn() -> None:
    env = token_env(reward="role")
    env.reset(seed=0)
    for token in [*tokens_of("no box"), *tokens_of("nothing"), *tokens_of("no box")]:
        _, reward, _, _, info = env.last()
        assert sum(info["reward_terms"].values()) == pytest.approx(reward)
        env.step(token)


def test_reward_waits_for_an_agent_while_another_plays_its_tokens() -> None:
    env = token_env(reward="role")
    env.reset(seed=0)
    for token in [*tokens_of(WRONG), *tokens_of(REJECT)]:
        env.step(token)
    for token in ByteTokenizer().encode("abc"):
        env.step(token)
    assert env._cumulative_rewards["verifier_0"] == 1.0


def test_copy_in_mid_turn_goes_on_by_itself() -> None:
    env = token_env()
    env.reset(seed=0)
    for token in ByteTokenizer().encode("ab"):
        env.step(token)
    twin = copy.deepcopy(env)
    for token in tokens_of("X"):
        env.step(token)
    for token in tokens_of("Y"):
        twin.step(token)
    texts = [each.unwrapped.transcript[0].text for each in (env, twin)]
    assert texts == ["abX", "abY"]


def test_tokenizer_without_padding_id_pads_with_the_end_id() -> None:
    env = TokenEncoding(math_loop(), Letters(), max_prompt_tokens=5, max_new_tokens=4, render=lambda messages: "cab")
    env.reset(seed=0)
    assert env.observe("solver_0").tolist() == [26, 26, 2, 0, 1]
    assert env.action_space("solver_0").n == 27  # type: ignore[attr-defined]


def test_numpy_integers_are_actions() -> None:
    env = token_env()
    env.reset(seed=0)
    env.step(np.int64(70))
    env.step(np.int32(1))
    assert env.unwrapped.transcript[0].text == "D"


@pytest.mark.parametrize("action", ["text", 1.5, None, True, [3]])
def test_action_that_is_no_id_is_refused_and_changes_nothing(action: object) -> None:
    env = token_env()
    env.reset(seed=0)
    env.step(70)
    with pytest.raises(InvalidActionError, match=re.escape("for solver_0; expected one token id below 258")):
        env.step(action)  # type: ignore[arg-type]
    env.step(1)
    assert env.unwrapped.transcript[0].text == "D"


@pytest.mark.parametrize("action", [-1, 258])
def test_id_outside_the_vocabulary_is_refused(action: int) -> None:
    env = token_env()
    env.reset(seed=0)
    with pytest.raises(InvalidActionError, match=re.escape(f"token id {action} for solver_0; expected 0 to 257")):
        env.step(action)


def test_step_before_reset_says_so() -> None:
    with pytest.raises(EpisodeOrderError, match="before reset"):
        token_env().step(3)


@pytest.mark.parametrize("name", ["max_prompt_tokens", "max_new_tokens"])
def test_length_below_one_is_refused(name: str) -> None:
    lengths: dict[str, Any] = {"max_prompt_tokens": 8, "max_new_tokens": 8, name: 0}
    with pytest.raises(BadArgumentError, match=f"{name}=0: expected an integer of at least 1"):
        TokenEncoding(math_loop(), **lengths)


def test_environment_without_text_is_refused() -> None:
    with pytest.raises(BadArgumentError, match="expected a Dict with 'messages', and text"):
        TokenEncoding(token_env(), max_prompt_tokens=8, max_new_tokens=8)
