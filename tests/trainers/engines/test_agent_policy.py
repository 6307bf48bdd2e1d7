"""An engine takes an agent's part, in `play` and in Gymnasium."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import mas_envs
from adapters.gymnasium import AgentEnv
from adapters.llm import ChatCodec
from tests.trainers.tiny_team import make_env, tiny_policy
from trainers.engines.agent_policy import EngineFailureError, EnginePolicy
from trainers.engines.base import Request, Sampling
from trainers.engines.scripted import ScriptedEngine
from trainers.tiny_model import make_tiny_tokenizer

APPROVE = "<verify>approve</verify>"
MESSAGES: Any = ({"role": "user", "content": "Solve 3+4."},)


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    return ChatCodec(make_tiny_tokenizer([APPROVE, "Solve 3+4."]))


def engine_that_says(text: str, codec: ChatCodec, **options: Any) -> ScriptedEngine:
    return ScriptedEngine(lambda prompt_ids, seed: codec.encode_completion(text), **options)


def test_text_comes_back_without_special_tokens(codec: ChatCodec) -> None:
    assert EnginePolicy(engine_that_says(APPROVE, codec), codec)(MESSAGES) == APPROVE


def test_engine_sees_the_rendered_prompt_and_a_new_seed_each_time(codec: ChatCodec) -> None:
    seen: list[tuple[tuple[int, ...], int]] = []

    def notes(prompt_ids: tuple[int, ...], seed: int) -> Sequence[int]:
        seen.append((prompt_ids, seed))
        return codec.encode_completion("hm")

    for policy in (
        EnginePolicy(ScriptedEngine(notes), codec, seed=3),
        EnginePolicy(ScriptedEngine(notes), codec, seed=3),
    ):
        policy(MESSAGES)
        policy(MESSAGES)
    assert [prompt_ids for prompt_ids, _ in seen] == [codec.encode(MESSAGES)] * 4
    seeds = [seed for _, seed in seen]
    assert seeds[:2] == seeds[2:]
    assert seeds[0] != seeds[1]


def test_engine_that_fails_is_reported_with_its_reason(codec: ChatCodec) -> None:
    policy = EnginePolicy(engine_that_says("hm", codec), codec, deadline_s=0.0)
    text = r"the engine ended a completion with 'deadline' \(no details\); expected 'stop' or 'length'"
    with pytest.raises(EngineFailureError, match=text):
        policy(MESSAGES)


def test_engine_that_is_busy_for_others_is_refused(codec: ChatCodec) -> None:
    engine = engine_that_says("hm", codec)
    engine.submit([Request("mine", (5,), Sampling(), seed=0)])
    with pytest.raises(
        EngineFailureError, match=r"the engine gave back \['mine'\] while 'agent-policy-.*' was waited for"
    ):
        EnginePolicy(engine, codec)(MESSAGES)


def test_copy_of_an_environment_shares_the_engine(codec: ChatCodec) -> None:
    policy = EnginePolicy(engine_that_says(APPROVE, codec), codec)
    env = AgentEnv(make_env(), policies={"verifier": policy})
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    assert copy.deepcopy(policy) is policy
    assert twin.step("no box")[2]


def test_model_plays_an_agent(tiny_folder: Path) -> None:
    model = tiny_policy(tiny_folder)
    policy = EnginePolicy(model.engine, model.codec, model.sampling, seed=1)
    episode = mas_envs.play(make_env(), {"solver": policy}, seed=1)
    spoken = [turn for turn in episode.transcript if turn.agent_id == "solver_0"]
    assert spoken
    assert any("boxed" in turn.text for turn in spoken)
    assert all(len(model.codec.encode_completion(turn.text)) <= 9 for turn in spoken)
    again = mas_envs.play(
        make_env(), {"solver": EnginePolicy(model.engine, model.codec, model.sampling, seed=1)}, seed=1
    )
    assert again == episode
