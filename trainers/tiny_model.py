"""A small language model made on the spot: a tokenizer trained on the environment's own texts, and random weights."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from trainers.config import TinyModelSettings
from trainers.quiet import no_progress_bars

__all__ = ["make_tiny_model", "make_tiny_tokenizer"]

_PAD, _END = "<|endoftext|>", "<|im_end|>"
_OPENINGS = {role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant")}
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_PIECES = r"\d|\n?</?[A-Za-z_0-9]+>|\\[A-Za-z]+\{|[^\w\s]"
"""What always stands alone: digits one by one, tags, LaTeX openings, punctuation."""


def make_tiny_tokenizer(texts: Iterable[str], *, vocab_size: int = 512) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with single digits, whole tags and a ChatML template in which openings are one token.

    Every string can be encoded and comes back unchanged; the same texts give the same tokenizer.

    Args:
        texts: Prompts and completions of the environment.
        vocab_size: Most entries, at least 262 (all bytes and the special tokens).
    """
    special = [_PAD, _END, *_OPENINGS.values()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_END,
        pad_token=_PAD,
        additional_special_tokens=list(_OPENINGS.values()),
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = _CHAT_TEMPLATE
    return wrapped


def make_tiny_model(texts: Iterable[str], folder: Path, settings: TinyModelSettings, *, seed: int) -> Path:
    """Make tokenizer and model from nothing and save them as an ordinary transformers folder; returns the folder.

    The initial weights are larger than the usual 0.02: copying tokens through a tied head is learnt several times
    sooner that way.

    Args:
        texts: Prompts and completions of the environment.
        folder: Where to save.
        settings: Size and initialisation.
        seed: Seed of the weights.
    """
    tokenizer = make_tiny_tokenizer(texts, vocab_size=settings.vocab_size)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_heads,
        head_dim=settings.hidden_size // settings.num_heads,
        max_position_embeddings=settings.max_context,
        tie_word_embeddings=True,
        initializer_range=settings.init_std,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = Qwen3ForCausalLM(config)
        _scale_initial_weights(model, settings)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    with no_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def _scale_initial_weights(model: Any, settings: TinyModelSettings) -> None:
    model.get_input_embeddings().weight.normal_(0.0, settings.embedding_std)
    for layer in model.get_decoder().layers:
        for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
            projection.weight.normal_(0.0, 0.02 / math.sqrt(2 * settings.num_layers))
