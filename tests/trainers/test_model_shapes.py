"""Parameters, caches and activations from shapes alone, checked against transformers and PEFT without weights."""

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.autograd.graph import saved_tensors_hooks
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from trainers.config import AlgorithmSettings, LearnerSettings, PolicySettings
from trainers.learner import Learner
from trainers.model_shapes import KNOWN_SHAPES, ModelShape, shape_in_folder
from trainers.overrides import SettingsError

CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
PUBLISHED = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
}
"""Sums over the tensors of the published safetensors files."""


def config_of(shape: ModelShape) -> PretrainedConfig:
    return CONFIGS[shape.family](
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=shape.context,
    )


def small_shape(family: str, **changes: Any) -> ModelShape:
    sizes: dict[str, Any] = {"hidden": 64, "intermediate": 160, "layers": 6, "heads": 8, "kv_heads": 2, "head_dim": 8}
    return ModelShape(family=family, **{**sizes, "vocabulary": 128, "tied": True, "context": 256, **changes})


@pytest.mark.parametrize("name", KNOWN_SHAPES)
def test_parameters_are_those_of_the_model_that_transformers_builds(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(KNOWN_SHAPES[name]))
    assert KNOWN_SHAPES[name].parameters == model.num_parameters()
    assert KNOWN_SHAPES[name].parameters == PUBLISHED.get(name, model.num_parameters())


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["Qwen/Qwen3-4B", "Qwen/Qwen2.5-7B"])
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"]])
def test_adapter_has_the_parameters_that_peft_trains(name: str, targets: str | list[str]) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(KNOWN_SHAPES[name]))
        adapted = get_peft_model(model, LoraConfig(r=16, target_modules=targets, task_type="CAUSAL_LM"))
    assert KNOWN_SHAPES[name].adapter_parameters(16, targets) == adapted.get_nb_trainable_parameters()[0]


@dataclass(frozen=True)
class Kept:
    """What autograd keeps of a forward pass for the backward pass, in bytes."""

    per_token: float
    """Of one token."""
    constant: float
    """However many tokens there are."""


def kept_bytes(shape: ModelShape, dtype: torch.dtype, rank: int | None, learner: LearnerSettings) -> Kept:
    model = AutoModelForCausalLM.from_config(config_of(shape)).to(dtype)
    if rank is not None:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    policy = PolicySettings(learner=learner, max_grad_norm=None)
    parameters = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    Learner(
        model,
        policy,
        AlgorithmSettings(),
        total_updates=1,
        token_budget=1,
        temperature=1.0,
        max_completion_tokens=1,
        parameters=parameters,
    )  # switches on what the settings say
    model.train()
    short, long = (_kept_of_a_pass(model, tokens, learner) for tokens in (64, 128))
    return Kept((long - short) / 64, 2 * short - long)


def _kept_of_a_pass(model: Any, tokens: int, learner: LearnerSettings) -> int:
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    is_cast = learner.autocast == "bfloat16"
    with saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
        hidden = model.get_decoder()(input_ids=torch.arange(tokens)[None], use_cache=False)[0]
    assert hidden.requires_grad
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("family", "changes"),
    [("qwen2", {}), ("llama", {}), ("qwen3", {}), ("qwen3", {"heads": 4, "head_dim": 32, "kv_heads": 4})],
)
@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("autocast", ["off", "bfloat16"])
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_activations_are_what_autograd_keeps(
    family: str, changes: dict[str, int], dtype: torch.dtype, rank: int | None, autocast: Any
) -> None:
    shape, fewer = small_shape(family, **changes), small_shape(family, layers=5, **changes)
    is_cast = autocast == "bfloat16"
    plain, checkpointing = (
        LearnerSettings(autocast=autocast),
        LearnerSettings(autocast=autocast, gradient_checkpointing=True),
    )
    measured = kept_bytes(shape, dtype, rank, plain)
    assert shape.activation_bytes(dtype.itemsize, rank, autocast=is_cast) == pytest.approx(measured.per_token, rel=0.04)
    one_layer = measured.per_token - kept_bytes(fewer, dtype, rank, plain).per_token
    inputs = kept_bytes(shape, dtype, rank, checkpointing)
    assert shape.activation_bytes(dtype.itemsize, rank, autocast=is_cast, checkpointing=True) == pytest.approx(
        inputs.per_token + one_layer, rel=0.07
    )


@pytest.mark.parametrize(
    ("dtype", "rank"), [(torch.float32, None), (torch.float32, 4), (torch.bfloat16, None), (torch.bfloat16, 4)]
)
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_autocast_keeps_a_copy_of_float32_weights_that_multiply(dtype: torch.dtype, rank: int | None) -> None:
    shape = small_shape("qwen3")
    adapter = shape.adapter_parameters(rank) if rank else None
    measured = kept_bytes(shape, dtype, rank, LearnerSettings(autocast="bfloat16")).constant
    head = 2 * shape.vocabulary * shape.hidden if dtype == torch.float32 else 0  # multiplies behind the decoder
    assert shape.copy_bytes(dtype.itemsize, adapter) == pytest.approx(measured + head, rel=0.04)


def test_checkpointing_copies_frozen_weights_one_layer_at_a_time() -> None:
    shape = small_shape("qwen3")
    head, layers, adapter = 2 * 128 * 64, 2 * 6 * 40_960, shape.adapter_parameters(4)
    assert shape.copy_bytes(4) == shape.copy_bytes(4, checkpointing=True) == head + layers
    assert shape.copy_bytes(4, adapter, checkpointing=True) == head + layers // 6 + 2 * adapter


def test_cache_is_as_large_as_the_one_that_transformers_fills() -> None:
    shape, cache = small_shape("qwen3"), DynamicCache()
    model = AutoModelForCausalLM.from_config(config_of(shape))
    names = inspect.signature(model.get_decoder().forward).parameters
    keyword = "cache" if "cache" in names else "past_key_values"  # before transformers 5.24
    with torch.no_grad():
        model.get_decoder()(input_ids=torch.arange(10)[None], use_cache=True, **{keyword: cache})
    filled = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert filled == 10 * shape.cache_bytes(4)


@pytest.mark.parametrize("family", CONFIGS)
def test_shape_is_read_from_a_saved_folder(family: str, tmp_path: Path) -> None:
    shape = small_shape(family)
    config_of(shape).save_pretrained(tmp_path)
    assert shape_in_folder(tmp_path) == shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "config.json: cannot be read"),
        ("{", "config.json: cannot be read"),
        (json.dumps({"model_type": "mamba"}), "model_type='mamba' cannot be planned; expected one of llama, qwen2"),
        (json.dumps({"model_type": "qwen3"}), "'hidden_size' is missing; expected a whole transformers config.json"),
    ],
)
def test_folder_without_a_usable_shape_is_an_error(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        shape_in_folder(tmp_path)
