"""HierarchicalSearch-v0 and SearchSolo-v0: who speaks when, what is searched, what counts, and who is paid."""

import copy
import random
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import mas_envs
from mas_envs import Skill, Task
from mas_envs.conversation import Turn
from mas_envs.errors import BadArgumentError, MasEnvsError
from mas_envs.retrieval.protocol import RetrievalError
from mas_envs.search.env import HierarchicalSearchEnv
from mas_envs.search.game import Ending
from tests.mas_envs.play_through import finish
from tests.mas_envs.search.episodes import (
    ALL,
    FIRST,
    NO,
    NOTHING,
    RIGHT,
    SECOND,
    TABLE,
    TASK,
    WRONG,
    YES,
    shown,
    start,
    step,
)
from tests.mas_envs.search.table import TableRetriever, passage


@pytest.mark.parametrize(
    ("actions", "earned"),
    [
        ([YES, RIGHT], 1.0),
        ([YES, WRONG], 0.0),
        ([NO, FIRST, NO, SECOND, YES, RIGHT], 1.0),
        ([NO, FIRST, NO, FIRST, NO, FIRST, NO, RIGHT], 1.0),
    ],
)
def test_team_is_paid_for_the_answerer_s_answer(actions: Sequence[str], earned: float) -> None:
    assert finish(start(), *actions) == dict.fromkeys(ALL, earned)
    env = start()
    assert step(env, *actions)["success"] is (earned == 1.0)


@pytest.mark.parametrize(
    ("actions", "earned"),
    [
        (["?", FIRST, YES, RIGHT], (0.99, 1.0, 1.0)),
        ([NO, "<search>both</search>", YES, RIGHT], (1.0, 0.99, 1.0)),
        ([NO, FIRST, YES, "<answer>Toto Guda</answer>"], (1.0, 1.0, 0.99)),
        ([YES, NOTHING, YES, RIGHT], (1.0, 1.0, 0.99)),
        ([NO, NOTHING, NO, NOTHING, NO, NOTHING, NO, NOTHING], (0.0, -0.03, -0.01)),
    ],
)
def test_broken_format_costs_the_offender_only(actions: Sequence[str], earned: tuple[float, ...]) -> None:
    assert finish(start(), *actions) == dict(zip(ALL, earned, strict=True))


@pytest.mark.parametrize(
    ("actions", "earned"),
    [
        ([NO, FIRST, NO, SECOND, YES, RIGHT], (3.0, 1.0, 1.0)),
        ([YES, RIGHT], (0.0, 0.0, 1.0)),
        ([NO, FIRST, NO, FIRST, NO, SECOND, YES, WRONG], (4.0, 1.0, 0.0)),
        ([NO, "<think>d</think><search>both</search>", NO, SECOND, YES, RIGHT], (2.0, 1.0, 1.0)),
        (["no verdict", FIRST, NO, SECOND, YES, RIGHT], (1.99, 1.0, 1.0)),
    ],
)
def test_each_role_is_paid_for_its_own_part(actions: Sequence[str], earned: tuple[float, ...]) -> None:
    assert finish(start(reward="role"), *actions) == dict(zip(ALL, earned, strict=True))


def test_evidence_of_one_episode_is_not_there_in_the_next() -> None:
    env = start(reward="role")
    step(env, NO, FIRST, NO, SECOND)
    assert env.has_all_evidence
    env.reset(options={"task": TASK})
    assert not env.has_all_evidence
    assert env.rounds == ()
    assert step(env, NO, FIRST)["reward_terms"] == {"route": 1.0}


def test_evidence_is_a_passage_with_a_gold_answer_where_a_task_names_none() -> None:
    bare = Task("b", "Who taught Ana Belu?", ("x", "Toto Guda"))
    assert finish(start(bare, reward="role"), NO, SECOND, YES, RIGHT) == dict.fromkeys(ALL, 1.0) | {"verifier_0": 2.0}


def test_supporting_ids_tell_passages_of_one_title_apart() -> None:
    task = Task("i", "q", "a", "", {"supporting_ids": ("2",), "supporting_titles": ("Ana",)})
    table = {"x": [passage("Ana", id="1")], "y": [passage("Ana", id="2")]}
    env = start(task, retriever=TableRetriever(table), reward="role", prompt_style="short")
    step(env, NO, "<search>x</search>")
    assert not env.has_all_evidence
    step(env, NO, "<search>y</search>")
    assert env.has_all_evidence


def test_reward_function_sees_task_transcript_and_ending() -> None:
    seen: list[Any] = []

    def reward(task: Task, turns: Sequence[Turn], ending: Ending) -> Mapping[str, float]:
        seen.append((task.id, [turn.agent_id for turn in turns], ending.answer, ending.correct, len(ending.rounds)))
        return {"searcher_0": 0.25}

    assert finish(start(reward=reward), NO, FIRST, YES, WRONG) == dict.fromkeys(ALL, 0.0) | {"searcher_0": 0.25}
    assert seen == [("t", ["verifier_0", "searcher_0", "verifier_0", "answerer_0"], "Ana Belu", False, 1)]


def test_unusable_result_of_a_reward_function_is_an_error() -> None:
    with pytest.raises(
        MasEnvsError, match=r"the reward function of hierarchical_search_v0 returned 1\.0; expected a map"
    ):
        step(start(reward=lambda task, turns, ending: 1.0), YES, RIGHT)


def test_unknown_verdict_means_search() -> None:
    env = start()
    assert step(env, "no idea")["valid_action"] is True
    assert env.agent_selection == "searcher_0"
    assert env.infos["verifier_0"]["valid_action"] is False


def test_last_round_belongs_to_the_answerer_or_the_router() -> None:
    env = start(max_rounds=1)
    step(env, NO)
    assert env.agent_selection == "answerer_0"
    routed = start(max_rounds=1, final_round="route", reward="role")
    assert step(routed, NO)["success"] is False
    assert set(routed.terminations.values()) == {True}
    assert finish(routed) == dict.fromkeys(ALL, 0.0) | {"verifier_0": 1.0}


@pytest.mark.parametrize(
    "query", ["", "<search></search>", "<search>  </search>", "mayor", "<search><answer>x</answer></search>"]
)
def test_unusable_query_costs_the_round_and_is_not_sent(query: str) -> None:
    retriever = TableRetriever(TABLE)
    env = start(retriever=retriever)
    step(env, NO, query)
    assert (retriever.asked, len(env.rounds), env.agent_selection) == ([], 1, "verifier_0")
    assert "(a round without a usable query)" in shown(env, "answerer_0")


def test_unusable_answer_costs_the_round_but_ends_the_last() -> None:
    env = start(max_rounds=2)
    step(env, YES, NOTHING)
    assert (env.agent_selection, len(env.rounds)) == ("verifier_0", 1)
    assert step(env, YES, NOTHING)["success"] is False


def test_query_is_sent_with_topk() -> None:
    retriever = TableRetriever(TABLE)
    step(start(retriever=retriever, topk=1), NO, FIRST)
    assert retriever.asked == [("mayor of Velonford", 1)]


def test_more_passages_than_asked_for_are_left_out() -> None:
    env = start(topk=1)
    step(env, NO, FIRST)
    assert [each.title for each in env.rounds[0].passages] == ["Velonford"]


@pytest.mark.parametrize(
    ("retriever", "error"),
    [
        (
            TableRetriever({"mayor of Velonford": TimeoutError("5 s")}),
            "retrieval: the retriever failed .TimeoutError: 5 s",
        ),
        (
            TableRetriever({"mayor of Velonford": RetrievalError("garbage")}),
            "retrieval: the retriever failed .*garbage",
        ),
        (
            type("Broken", (), {"search": lambda self, queries, k: "<html>"})(),
            "the retriever returned '<html>'; expected",
        ),
        (
            type("Empty", (), {"search": lambda self, queries, k: []})(),
            r"the retriever returned \[\]; expected one list",
        ),
        (
            type("Odd", (), {"search": lambda self, queries, k: [["x"]]})(),
            r"the retriever returned \[\['x'\]\]; expected",
        ),
    ],
)
def test_failed_retrieval_truncates_and_is_never_evidence(retriever: Any, error: str) -> None:
    env = start(retriever=retriever)
    info = step(env, NO, FIRST)
    assert set(env.truncations.values()) == {True}
    assert set(env.terminations.values()) == {False}
    assert info["success"] is None
    assert env.rounds == ()
    assert "retriev" not in shown(env, "answerer_0")
    assert all(re.search(error, each["error"]) for each in env.infos.values())
    assert info["reward_terms"] == {}
    assert finish(env) == dict.fromkeys(ALL, 0.0)


def test_malformed_query_whose_retrieval_fails_is_still_charged() -> None:
    env = start()
    step(env, NO, "<search>down</search>")
    assert finish(env) == dict.fromkeys(ALL, 0.0) | {"searcher_0": -0.01}


def test_answer_inside_a_query_is_not_an_answer() -> None:
    env = start()
    step(env, NO, "<search>is it <answer>Toto Guda</answer></search>")
    assert (env.agent_selection, env.infos["searcher_0"]["success"]) == ("verifier_0", None)


def test_copy_in_mid_episode_is_independent_and_shares_the_index() -> None:
    env = mas_envs.make("HierarchicalSearch-v0").unwrapped
    assert isinstance(env, HierarchicalSearchEnv)
    env.reset(seed=3)
    rng = random.Random(0)
    for _ in range(2):
        env.step(env.scripted_action(env.agent_selection, rng))
    twin = copy.deepcopy(env)
    assert twin.retriever is env.retriever
    assert twin.rounds == env.rounds
    assert shown(twin, "verifier_0") == shown(env, "verifier_0")
    step(twin, NO, "<search>something</search>")
    assert (len(twin.rounds), len(env.rounds)) == (2, 1)


def test_copy_shares_a_retriever_that_cannot_be_copied() -> None:
    retriever = TableRetriever(TABLE)
    retriever.lock = threading.Lock()  # type: ignore[attr-defined]
    env = start(retriever=retriever)
    twin = copy.deepcopy(env)
    step(twin, NO, FIRST)
    assert retriever.asked == [("mayor of Velonford", 3)]


def test_limit_of_turns_truncates() -> None:
    env = start(max_turns=2)
    assert step(env, NO, FIRST)["success"] is None
    assert set(env.truncations.values()) == {True}


def test_alias_of_the_answer_counts_on_request() -> None:
    alias = "<think>c</think><answer>Guda the Owl</answer>"
    assert finish(start(), YES, alias)["answerer_0"] == 0.0
    assert finish(start(alias_match=True), YES, alias)["answerer_0"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_rounds": 0}, "max_rounds=0: expected a whole number >= 1"),
        ({"topk": 1.5}, r"topk=1\.5: expected a whole number >= 1"),
        ({"max_prompt_chars": True}, "max_prompt_chars=True: expected a whole number"),
        ({"final_round": "searcher"}, "final_round='searcher': expected 'answer' or 'route'"),
        ({"reward": "solo"}, "reward='solo': expected 'team', 'role' or a function"),
        ({"prompt_style": "long"}, "prompt_style='long': expected one of full, short"),
        ({"retriever": "google"}, "retriever='google': expected a Retriever, one of faiss, bm25, hybrid"),
        ({"retriever": 3}, r"retriever=3: expected an object with search\(queries, k\), or a name"),
        ({"tasks": [TASK]}, "retriever=None: the tasks 'tasks' bring no passages to search in; pass a Retriever"),
    ],
)
def test_argument_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        mas_envs.make("HierarchicalSearch-v0", **arguments)


@pytest.mark.parametrize("env_id", ["HierarchicalSearch-v0", "SearchSolo-v0"])
@pytest.mark.parametrize("retriever", [None, "bm25", "hybrid"])
@pytest.mark.parametrize("style", ["full", "short"])
def test_experts_solve_the_embedded_world_offline(env_id: str, retriever: str | None, style: str) -> None:
    tasks = {"name": "world", "split": "test", "hops": [1, 2, 3]}
    env = mas_envs.make(env_id, tasks=tasks, retriever=retriever, prompt_style=style).unwrapped
    rng = random.Random(0)
    for index in range(25):
        env.reset(options={"task": index})
        while not any(env.terminations.values()):
            env.step(env.scripted_action(env.agent_selection, rng))
        assert {turn.valid for turn in env.transcript} == {True}
        assert env.infos["searcher_0"]["success"] is True
        assert len(env.rounds) == env.task.metadata["hops"]


def test_default_environment_searches_a_real_faiss_index() -> None:
    env = mas_envs.make("HierarchicalSearch-v0").unwrapped
    assert type(env.retriever).__name__ == "FaissRetriever"
    assert env.retriever.index.ntotal == 1000


def test_unskilled_experts_are_wrong_or_malformed() -> None:
    env, rng = start(prompt_style="short"), random.Random(0)
    env.tasks = mas_envs.make("HierarchicalSearch-v0").unwrapped.tasks
    assert env.scripted_action("verifier_0", rng, Skill(accuracy=0.0)) == "<verify>yes</verify>"
    assert "Velonford" not in env.scripted_action("searcher_0", rng, Skill(accuracy=0.0))
    step(env, env.scripted_action("verifier_0", rng, Skill(malformed=1.0)))
    assert env.infos["verifier_0"]["valid_action"] is False
