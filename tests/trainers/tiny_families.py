"""Models of a few thousand weights with the architecture, special tokens and chat template of the large ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

__all__ = ["make_tiny_family"]

_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
)
_TEMPLATES: Mapping[str, str] = {
    "qwen2": "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" + _CHATML + "{% endif %}",
    "qwen3": _CHATML + "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}"
    "{% endif %}{% endif %}",
    "llama": "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
}
"""Family -> the layout of its published template."""
_SPECIAL: Mapping[str, tuple[str, ...]] = {
    "qwen2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama": ("<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
}
"""Family -> its special tokens; the first pads."""
_END = {"qwen2": "<|endoftext|>", "qwen3": "<|im_end|>", "llama": "<|eot_id|>"}
"""Family -> what ends a completion; of Qwen2.5 the base model's."""
_CONFIGS: Mapping[str, type[PretrainedConfig]] = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}


def _tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Bytes and special tokens; nothing is merged."""
    vocabulary = {piece: index for index, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = _SPECIAL[family]
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_END[family],
        pad_token=special[0],
        additional_special_tokens=list(special),
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = _TEMPLATES[family]
    return wrapped


def make_tiny_family(family: str, folder: Path, *, context: int) -> Path:
    """A folder with a random model and its tokenizer; returns the folder.

    Args:
        family: `qwen2`, `qwen3` or `llama`.
        folder: Where to save.
        context: Most tokens of prompt and completion together, as in the large model.
    """
    tokenizer = _tokenizer(family)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 8}
    config = _CONFIGS[family](
        **sizes,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
