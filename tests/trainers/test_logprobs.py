"""Logprobs with prompts computed once equal those row by row, gradients included."""

from typing import Any

import pytest
import torch

from tests.trainers.engines.engine_cases import tiny_llama, tiny_qwen2, tiny_qwen3
from trainers import logprobs
from trainers.logprobs import score_completions, sharing_pays

PROMPTS = [(5, 6, 7, 8)] * 3 + [(9, 10)] * 2 + [(11,) * 6]
COMPLETIONS = [(3, 4, 5), (4,), (12, 13, 14, 15, 16), (3, 3), (20, 21, 22), (7,)]


def scores_and_gradients(model: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    scores = score_completions(model, PROMPTS, COMPLETIONS, temperature=0.7, with_entropy=True)
    weights = torch.linspace(-1.0, 1.0, len(scores.logprobs))
    assert scores.entropy is not None
    ((weights * scores.logprobs).sum() + scores.entropy.sum()).backward()  # type: ignore[no-untyped-call]
    return scores.logprobs.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("build", [tiny_qwen3, tiny_llama, tiny_qwen2])
def test_shared_prompts_change_neither_scores_nor_gradients(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build().train()
    plain, plain_gradients = scores_and_gradients(model)
    monkeypatch.setattr(logprobs, "_FEWEST_TOKENS_TO_SHARE", 0)
    monkeypatch.setattr(logprobs, "_SHARED_FRAC", 10.0)
    shared, shared_gradients = scores_and_gradients(model)
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=1e-5)
    assert len(shared_gradients) == len(plain_gradients) > 0
    for ours, theirs in zip(shared_gradients, plain_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_sharing_pays_for_groups_with_long_prompts_only() -> None:
    long, short = (5,) * 128, (5,) * 4
    assert sharing_pays([long] * 32, [long] * 32)
    assert not sharing_pays([(number, *long) for number in range(32)], [long] * 32)
    assert not sharing_pays([short] * 32, [long] * 32)
    assert not sharing_pays([long] * 4, [short] * 4)
