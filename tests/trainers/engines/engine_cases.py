"""The engines that the contract test runs over: a new engine is one more entry in `CASES`."""

import atexit
import functools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from trainers.engines.base import Completion, Engine, Request, Sampling
from trainers.engines.scripted import ScriptedEngine
from trainers.engines.transformers_engine import TransformersEngine
from trainers.engines.vllm_engine import VllmEngine

VOCABULARY = 40
CONTEXT = 64
EOS = (1, 2)
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
}


def tiny_qwen3(seed: int = 0, **changes: object) -> Any:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "head_dim": 8, "tie_word_embeddings": True, **changes}))


def tiny_llama(seed: int = 0, **changes: object) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, "attention_bias": True, "mlp_bias": True, **changes}))


def tiny_qwen2(seed: int = 0, **changes: object) -> Any:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(**{**SHAPE, "tie_word_embeddings": False, **changes}))


@dataclass(frozen=True)
class Case:
    """One engine under test."""

    name: str
    build_model: Callable[[], Any] | None
    """The model that it samples from; None for an engine without one."""
    build_engine: Callable[[Any], Engine]
    """The engine with `EOS` and `CONTEXT` over that model."""
    keeps_time: bool = True
    """Whether the same calls lead to the same batches; an engine in another process starts when it hears of them."""


def over(**options: Any) -> Callable[[Any], Engine]:
    return lambda model: TransformersEngine(model, eos_token_ids=EOS, **options)


def scripted(_: Any) -> Engine:
    def script(prompt_ids: tuple[int, ...], seed: int) -> list[int]:
        return [3 + (seed * 7 + sum(prompt_ids) + index * index) % 37 for index in range(60)] + [EOS[0]]

    return ScriptedEngine(script, eos_token_ids=EOS, max_context=CONTEXT, batch_size=4)


VLLM_PYTHON = os.environ.get("MAS_ENVS_VLLM_PYTHON")
"""An interpreter that has vLLM; without it the cases of the vLLM engine are left out."""


@functools.cache
def vllm_engines() -> list[VllmEngine]:
    """The engines that are open: starting one takes ten seconds, so that one serves many tests."""
    return []


def vllm(model: Any) -> Engine:
    """A running vLLM, given the weights of this model."""
    held = vllm_engines()
    if held and not held[0].is_closed:
        held[0].cancel([*held[0].in_flight])
        while held[0].poll():
            pass
        held[0].sync(model.state_dict(), 0)
        return held[0]
    folder = Path(tempfile.mkdtemp())
    model.save_pretrained(folder)
    held[:] = [VllmEngine(folder, eos_token_ids=EOS, max_context=CONTEXT, vocabulary=VOCABULARY, python=VLLM_PYTHON)]
    atexit.register(held[0].close)
    return held[0]


CASES = [
    Case("qwen3-fused", tiny_qwen3, over(fused=True)),
    Case("qwen3-module", tiny_qwen3, over(fused=False)),
    Case("qwen3-eager", lambda: tiny_qwen3(attn_implementation="eager"), over(fused=False)),
    Case("qwen3-few-rows", tiny_qwen3, over(max_rows=3)),
    Case("llama-fused", tiny_llama, over(fused=True)),
    Case("llama-module", tiny_llama, over(fused=False)),
    Case("qwen2-fused", tiny_qwen2, over(fused=True)),
    Case("scripted", None, scripted),
]
if VLLM_PYTHON:
    CASES.append(Case("vllm", lambda: tiny_qwen3(head_dim=32), vllm, keeps_time=False))
MODEL_CASES = [case for case in CASES if case.build_model is not None]


def request(request_id: str, prompt: tuple[int, ...] = (5, 6, 7), *, seed: int = 0, **options: Any) -> Request:
    """A request; options that `Request` does not know are sampling settings."""
    own = {name: options.pop(name) for name in ("adapter", "deadline_s") if name in options}
    return Request(request_id, prompt, Sampling(**{"max_tokens": 12, **options}), seed, **own)


def drain(engine: Engine, *requests: Request) -> dict[str, Completion]:
    """Everything that comes back after submitting, by id; an id that comes back twice is an error."""
    engine.submit(requests)
    completions: dict[str, Completion] = {}
    while ended := engine.poll():
        for completion in ended:
            assert completion.request_id not in completions
            completions[completion.request_id] = completion
    return completions


def varied_requests(count: int, **options: Any) -> list[Request]:
    """Prompts of 1 to 20 tokens, every third one equal to the one before."""
    prompts: list[tuple[int, ...]] = []
    for index in range(count):
        fresh = tuple(3 + (index * 11 + place * 5) % (VOCABULARY - 3) for place in range(1 + (index * 7) % 20))
        prompts.append(prompts[-1] if index % 3 == 1 else fresh)
    return [
        request(f"r{index}", prompt, seed=index, **{"max_tokens": 1 + index % 14, **options})
        for index, prompt in enumerate(prompts)
    ]


@torch.no_grad()
def forced_logits(model: Any, prompt: tuple[int, ...], completion: Completion) -> torch.Tensor:
    """[T, V] logits of a plain forward over prompt and completion, at the positions that gave each token."""
    ids = torch.tensor([prompt + completion.token_ids])
    logits: torch.Tensor = model(input_ids=ids).logits[0]
    return logits[len(prompt) - 1 : -1].float()
