"""Sampling maths against hand-made distributions and the filters of transformers."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TopKLogitsWarper, TopPLogitsWarper

from trainers.engines.sampling import Draw, Floats, draw, inverse_cdf, stream, truncate, uniforms


def draw_one(logits: list[float], uniform: float, *, temperature: float = 1.0) -> Draw:
    return draw(
        torch.tensor([logits]),
        np.array([uniform]),
        temperature=np.array([temperature]),
        top_p=np.ones(1),
        top_k=np.zeros(1, dtype=np.int64),
    )


def numbers(seeds: Iterable[int], places: Iterable[int]) -> Floats:
    starts = np.array([stream(seed) for seed in seeds], dtype=np.uint64)
    return uniforms(starts, np.array(list(places), dtype=np.int64))


def test_the_first_numbers_of_seed_zero_are_those_of_splitmix64_from_its_mixed_start() -> None:
    assert stream(0) == 0xE220A8397B1DCDAF  # the first output of SplitMix64 seeded with 0, as published
    second = uniforms(np.zeros(1, dtype=np.uint64), np.array([1]))[0]
    assert second == (0x6E789E6AA1B965F4 >> 11) * 2.0**-53


def test_random_numbers_depend_on_the_seed_and_the_place_alone() -> None:
    seeds, places = (5, 6, 5, 2**64 - 1), (0, 0, 1, 0)
    together = numbers(seeds, places).tolist()
    assert [numbers([seed], [place])[0] for seed, place in zip(seeds, places, strict=True)] == together
    assert len(set(together)) == 4


def test_random_numbers_look_uniform_along_seeds_and_along_places() -> None:
    count = range(20_000)
    for drawn in (
        numbers(count, [0] * 20_000),
        numbers([0] * 20_000, count),
        numbers((i // 8 for i in count), (i % 8 for i in count)),
    ):
        assert ((drawn >= 0) & (drawn < 1)).all()
        assert np.histogram(drawn, bins=20, range=(0, 1))[0] == pytest.approx(1000, abs=150)
        assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (np.nextafter(1.0, 0.0), 4)]
)
def test_inverse_cdf_skips_impossible_tokens_at_every_edge(uniform: float, token: int) -> None:
    logprobs = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]], dtype=torch.float64).log()
    assert inverse_cdf(logprobs, torch.tensor([uniform], dtype=torch.float64)).tolist() == [token]


@given(
    st.lists(st.one_of(st.floats(-30, 30), st.just(-np.inf)), min_size=1, max_size=50),
    st.floats(0, 1, exclude_max=True),
)
def test_no_token_of_probability_zero_is_ever_drawn(logits: list[float], uniform: float) -> None:
    logits[len(logits) // 2] = 0.0
    drawn = draw_one(logits, uniform)
    assert np.isfinite(logits[drawn.token_ids[0]])
    assert np.isfinite(drawn.logprobs[0])


def test_frequencies_and_logprobs_follow_the_temperature() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0])
    count = 20_000
    drawn = draw(
        logits.expand(count, 4),
        (np.arange(count) + 0.5) / count,
        temperature=np.full(count, 0.5),
        top_p=np.ones(count),
        top_k=np.zeros(count, dtype=np.int64),
    )
    expected = torch.softmax(logits / 0.5, dim=-1)
    assert np.bincount(drawn.token_ids, minlength=4) / count == pytest.approx(expected.numpy(), abs=1e-4)
    assert np.exp(drawn.logprobs) == pytest.approx(expected.numpy()[drawn.token_ids], rel=1e-5)


def test_greedy_ignores_the_random_number_and_reports_the_logprob_at_temperature_one() -> None:
    drawn = draw_one([0.0, 2.0, 1.0], 0.999, temperature=0.0)
    assert drawn.token_ids.tolist() == [1]
    assert drawn.logprobs[0] == pytest.approx(torch.log_softmax(torch.tensor([0.0, 2.0, 1.0]), -1)[1].item())


def test_a_tiny_temperature_does_not_overflow() -> None:
    drawn = draw_one([3e4, -3e4, 2.9e4], 0.5, temperature=1e-35)
    assert drawn.token_ids.tolist() == [0]
    assert drawn.logprobs.tolist() == [0.0]


def test_logits_that_are_not_numbers_give_a_nan_logprob() -> None:
    assert np.isnan(draw_one([0.0, float("nan"), 1.0], 0.5).logprobs[0])
    assert np.isnan(draw_one([0.0, float("inf"), float("inf")], 0.5, temperature=0.0).logprobs[0])


@pytest.mark.parametrize(("top_p", "top_k"), [(1.0, 3), (0.5, 0), (0.9, 0), (0.7, 4), (0.01, 0), (1.0, 0), (1.0, 99)])
def test_truncation_equals_the_filters_of_transformers(top_p: float, top_k: int) -> None:
    logits = torch.randn(32, 17, generator=torch.Generator().manual_seed(1)) * 2
    expected = logits
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    expected = torch.log_softmax(expected, dim=-1)
    kept = truncate(torch.log_softmax(logits, dim=-1), top_p=np.full(32, top_p), top_k=np.full(32, top_k))
    assert torch.equal(kept.isinf(), expected.isinf())
    assert torch.allclose(kept, expected, atol=1e-6)


def test_rows_of_one_batch_keep_their_own_settings() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).repeat(4, 1)
    drawn = draw(
        logits,
        np.zeros(4),
        temperature=np.array([1.0, 0.0, 1.0, 1.0]),
        top_p=np.array([1.0, 1.0, 0.5, 1.0]),
        top_k=np.array([0, 0, 0, 2]),
    )
    assert drawn.token_ids.tolist() == [0, 3, 3, 2]
    raw = torch.log_softmax(logits[0], -1)
    expected = [raw[0].item(), raw[3].item(), 0.0, torch.log_softmax(torch.tensor([2.0, 3.0]), -1)[0].item()]
    assert drawn.logprobs == pytest.approx(expected, abs=1e-6)
