"""What every engine must do; see `engine_cases.CASES` for the engines."""

from typing import Any

import pytest
import torch

from tests.trainers.engines.engine_cases import (
    CASES,
    CONTEXT,
    EOS,
    MODEL_CASES,
    VOCABULARY,
    Case,
    drain,
    forced_logits,
    request,
    varied_requests,
)
from trainers.engines.base import Engine


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def engine(case: Case) -> Engine:
    return case.build_engine(case.build_model and case.build_model())


@pytest.fixture(params=MODEL_CASES, ids=lambda case: case.name)
def modelled(request: pytest.FixtureRequest) -> tuple[Any, Engine]:
    case: Case = request.param
    assert case.build_model is not None
    model = case.build_model().eval()
    return model, case.build_engine(model)


def test_every_request_comes_back_once_and_an_idle_engine_gives_nothing(engine: Engine) -> None:
    requests = varied_requests(20)
    assert engine.poll() == []
    completions = drain(engine, *requests)
    assert completions.keys() == {wanted.request_id for wanted in requests}
    assert engine.poll() == []


def test_tokens_and_logprobs_match_in_number_and_the_reason_fits_the_last_token(engine: Engine) -> None:
    requests = varied_requests(20)
    completions = drain(engine, *requests)
    for wanted in requests:
        completion = completions[wanted.request_id]
        tokens = completion.token_ids
        assert len(tokens) == len(completion.logprobs) > 0
        assert all(logprob <= 0 for logprob in completion.logprobs)
        assert all(0 <= token < VOCABULARY for token in tokens)
        assert not set(tokens[:-1]) & set(EOS)
        if completion.finish_reason == "stop":
            assert tokens[-1] in EOS
        else:
            assert completion.finish_reason == "length"
            assert len(tokens) == wanted.sampling.max_tokens
        assert completion.seconds >= 0
        assert completion.error is None


def test_a_request_can_be_submitted_while_others_run(engine: Engine) -> None:
    requests = varied_requests(24)
    engine.submit(requests[:10])
    later = iter(requests[10:])
    seen: list[str] = []
    while ended := engine.poll():
        seen += [completion.request_id for completion in ended]
        engine.submit([wanted for wanted in (next(later, None), next(later, None)) if wanted is not None])
    assert sorted(seen) == sorted(wanted.request_id for wanted in requests)


def test_same_seed_gives_same_tokens_whatever_else_is_in_flight(engine: Engine) -> None:
    requests = varied_requests(16)
    together = drain(engine, *requests)
    for wanted in requests[::3]:
        alone = drain(engine, wanted)[wanted.request_id]
        assert alone.token_ids == together[wanted.request_id].token_ids
        assert alone.logprobs == pytest.approx(together[wanted.request_id].logprobs, abs=1e-5)


def test_the_same_schedule_gives_the_same_bits(case: Case, engine: Engine) -> None:
    first = drain(engine, *varied_requests(16))
    second = drain(engine, *varied_requests(16))
    for name, completion in first.items():
        assert second[name].token_ids == completion.token_ids
        if case.keeps_time:
            assert second[name].logprobs == completion.logprobs


def test_different_seeds_give_different_completions(engine: Engine) -> None:
    completions = drain(engine, *[request(f"r{seed}", seed=seed) for seed in range(8)])
    assert len({completion.token_ids for completion in completions.values()}) > 4


def test_a_completion_ends_where_the_context_ends(engine: Engine) -> None:
    prompt = tuple(3 + index % 9 for index in range(CONTEXT - 3))
    completions = drain(engine, *[request(f"r{seed}", prompt, seed=seed, max_tokens=30) for seed in range(6)])
    lengths = [len(one.token_ids) for one in completions.values() if one.finish_reason == "length"]
    assert lengths
    assert set(lengths) == {3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": ()}, r"request 'bad' has an empty prompt; expected at least one token id"),
        ({"prompt": (3,) * CONTEXT}, r"request 'bad' has a prompt of 64 tokens; expected fewer than the context of 64"),
        ({"adapter": "nobody"}, r"request 'bad' wants adapter 'nobody'; expected None or one of \(\)"),
        ({"seed": -1}, r"request 'bad' has seed=-1; expected 0 to 2\*\*64 - 1"),
        ({"max_tokens": 0}, r"request 'bad' has max_tokens=0; expected 1 or more"),
        ({"temperature": -0.5}, r"request 'bad' has temperature=-0.5; expected 0 \(greedy\) or a positive number"),
        ({"temperature": float("nan")}, r"request 'bad' has temperature=nan; expected 0"),
        ({"top_p": 0.0}, r"request 'bad' has top_p=0.0; expected a number in \(0, 1\]"),
        ({"top_k": -1}, r"request 'bad' has top_k=-1; expected 0 \(keeps all tokens\) or more"),
    ],
)
def test_an_impossible_request_is_refused_by_name_and_nothing_is_queued(
    engine: Engine, options: dict[str, Any], message: str
) -> None:
    bad = request("bad", **options)
    with pytest.raises(ValueError, match=message):
        engine.submit([request("good"), bad])
    assert engine.poll() == []


def test_an_id_in_flight_cannot_be_used_again_until_it_came_back(engine: Engine) -> None:
    engine.submit([request("a")])
    with pytest.raises(ValueError, match="request 'a' is already in flight; expected a new id"):
        engine.submit([request("a")])
    while engine.poll():
        pass
    with pytest.raises(ValueError, match="request 'b' is already in flight"):
        engine.submit([request("b"), request("b")])
    assert drain(engine, request("a")).keys() == {"a"}


def test_a_passed_deadline_gives_back_what_there_is(engine: Engine) -> None:
    completions = drain(engine, request("late", deadline_s=0.0), request("patient", deadline_s=600.0))
    assert completions["late"].finish_reason == "deadline"
    assert completions["late"].token_ids == ()
    assert completions["patient"].finish_reason in ("stop", "length")


def test_cancelled_requests_come_back_once_and_unknown_ids_are_ignored(engine: Engine) -> None:
    engine.submit([request("a"), request("b")])
    engine.cancel(["a", "stranger"])
    engine.cancel(["a"])
    completions = drain(engine)
    assert completions["a"].finish_reason == "cancelled"
    assert completions["b"].finish_reason in ("stop", "length")


def test_close_twice_is_safe_and_a_closed_engine_takes_nothing(engine: Engine) -> None:
    engine.submit([request("a")])
    engine.close()
    engine.close()
    assert engine.poll() == []
    with pytest.raises(RuntimeError, match="submit on a closed engine; expected an open one"):
        engine.submit([request("b")])


def test_sync_of_an_unknown_adapter_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"unknown adapter 'nobody'; expected one of \(\)"):
        engine.sync({}, 1, adapter="nobody")


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_logprobs_equal_a_forward_of_the_module(modelled: tuple[Any, Engine], temperature: float) -> None:
    model, engine = modelled
    requests = varied_requests(24, temperature=temperature)
    completions = drain(engine, *requests)
    for wanted in requests:
        completion = completions[wanted.request_id]
        logprobs = torch.log_softmax(forced_logits(model, wanted.prompt_ids, completion) / temperature, dim=-1)
        expected = logprobs[torch.arange(len(logprobs)), list(completion.token_ids)]
        assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-5)


def test_greedy_takes_the_likeliest_token_and_reports_the_raw_logprob(modelled: tuple[Any, Engine]) -> None:
    model, engine = modelled
    requests = varied_requests(12, temperature=0.0)
    completions = drain(engine, *requests, request("warm", temperature=1.0))
    for wanted in requests:
        completion = completions[wanted.request_id]
        best = torch.log_softmax(forced_logits(model, wanted.prompt_ids, completion), dim=-1).max(-1)
        assert completion.token_ids == tuple(best.indices.tolist())
        assert completion.logprobs == pytest.approx(best.values.tolist(), abs=1e-5)


def test_truncated_rows_in_a_mixed_batch_draw_only_what_was_kept(modelled: tuple[Any, Engine]) -> None:
    model, engine = modelled
    requests = [request(f"k{seed}", seed=seed, top_k=2) for seed in range(8)]
    requests += [request(f"free{seed}", seed=seed) for seed in range(8)]
    completions = drain(engine, *requests)
    for wanted in requests[:8]:
        completion = completions[wanted.request_id]
        top = forced_logits(model, wanted.prompt_ids, completion).topk(2)
        kept = torch.log_softmax(top.values, dim=-1)
        for place, token in enumerate(completion.token_ids):
            rank = top.indices[place].tolist().index(token)
            assert completion.logprobs[place] == pytest.approx(kept[place, rank].item(), abs=1e-5)


def test_sync_takes_new_weights_and_completions_report_the_version(modelled: tuple[Any, Engine]) -> None:
    model, engine = modelled
    before = drain(engine, request("probe", temperature=0.0))["probe"]
    assert before.policy_version == 0
    generator = torch.Generator().manual_seed(3)
    changed = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in model.state_dict().items()
    }
    changed |= {"lm_head.weight": changed["model.embed_tokens.weight"]} if model.config.tie_word_embeddings else {}
    engine.sync(changed, 7)
    after = drain(engine, request("probe", temperature=0.0))["probe"]
    assert after.policy_version == 7
    assert after.logprobs != pytest.approx(before.logprobs, abs=1e-3)
    model.load_state_dict(changed)
    expected = torch.log_softmax(forced_logits(model, (5, 6, 7), after), dim=-1).max(-1).values
    assert after.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
