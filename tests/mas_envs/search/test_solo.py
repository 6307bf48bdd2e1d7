"""SearchSolo-v0: one agent that searches and answers."""

from typing import Any

import pytest

import mas_envs
from mas_envs.search.env import SearchSoloEnv
from tests.mas_envs.play_through import finish
from tests.mas_envs.search.episodes import FIRST, NOTHING, RIGHT, SECOND, TABLE, TASK, step
from tests.mas_envs.search.table import TableRetriever


def start_solo(**kwargs: Any) -> SearchSoloEnv:
    env = mas_envs.make("SearchSolo-v0", retriever=TableRetriever(TABLE), **kwargs).unwrapped
    assert isinstance(env, SearchSoloEnv)
    env.reset(seed=0, options={"task": TASK})
    return env


def test_solo_agent_searches_then_answers() -> None:
    env = start_solo()
    assert env.possible_agents == ["searcher_0"]
    assert finish(env, FIRST, SECOND, RIGHT) == {"searcher_0": 1.0}
    assert len(env.rounds) == 2


def test_solo_agent_is_paid_by_role_for_evidence_too() -> None:
    assert finish(start_solo(reward="role"), FIRST, SECOND, RIGHT) == {"searcher_0": 2.0}


@pytest.mark.parametrize(
    ("text", "rounds", "success", "valid"),
    [
        (f"{FIRST}{RIGHT}", 0, True, False),
        (f"{FIRST}<answer>Toto Guda</answer>", 0, True, False),
        ("<answer>Toto Guda</answer><search>both</search>", 1, None, False),
        ("<search>is it <answer>Toto Guda</answer></search>", 1, None, False),
        ("<answer><search>both</search></answer>", 1, None, False),
        (NOTHING, 1, None, False),
        ("<think>t</think><answer>Toto Guda</answer>", 0, True, True),
    ],
)
def test_later_block_of_a_solo_turn_counts(text: str, rounds: int, success: bool | None, valid: bool) -> None:
    env = start_solo()
    info = step(env, text)
    assert (len(env.rounds), info["success"], info["valid_action"]) == (rounds, success, valid)


def test_query_in_the_last_solo_round_is_not_sent() -> None:
    env = start_solo(max_rounds=1)
    assert step(env, FIRST)["success"] is False
    assert env.rounds == ()
