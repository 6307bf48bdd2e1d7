"""Parameters, caches and activations from shapes alone, checked against transformers and PEFT without weights."""

import inspect
import json
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("family", "changes"),
    [("qwen2", {}), ("llama", {}), ("qwen3", {}), ("qwen3", {"heads": 4, "head_dim": 32, "kv_heads": 4})],
)
@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_activations_are_what_autograd_keeps(
    family: str, changes: dict[str, int], dtype: torch.dtype, rank: int | None
) -> None:
    shape, tokens = small_shape(family, **changes), 96
    model = AutoModelForCausalLM.from_config(config_of(shape)).to(dtype).train()
    if rank is not None:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM")).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.get_decoder()(input_ids=torch.arange(tokens)[None], use_cache=False)[0]
    assert hidden.requires_grad
    measured = sum(size for size, _ in kept.values()) / tokens
    assert shape.activation_bytes(dtype.itemsize, rank) == pytest.approx(measured, rel=0.03)


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
