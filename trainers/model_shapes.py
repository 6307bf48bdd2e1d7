"""Shapes of language models, and what follows from them: parameters, caches, activations; no weights, no network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.overrides import SettingsError

__all__ = ["KNOWN_SHAPES", "ModelShape", "shape_in_folder"]

_FAMILIES = ("llama", "qwen2", "qwen3")
"""Values of `model_type` whose layers are built as `ModelShape` says."""


_KEPT = {
    (False, "float32"): (24, 8, 8, 16, 8),
    (False, "bfloat16"): (16, 4, 4, 8, 6),
    (False, "autocast"): (26, 4, 4, 8, 6),
    (True, "float32"): (16, 8, 8, 16, 4),
    (True, "bfloat16"): (28, 8, 4, 10, 4),
    (True, "autocast"): (18, 6, 4, 8, 4),
}
"""Whether an adapter is trained, what the layers compute in -> bytes kept for each unit of the residual stream, the
queries, the keys (or values) and the feed-forward part, and more for queries and keys that are normalised.

Counted from what autograd saves of transformers' and PEFT's own code; a test checks it. Adapters compute in float32
unless there is autocast: over a half-precision base they keep more of the residual stream. Autocast changes nothing for
weights that are in bfloat16.
"""
_COPY_BYTES = 2
"""Of a weight that autocast has turned into bfloat16."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder with grouped attention and a gated feed-forward part: Llama, Qwen2 or Qwen3."""

    family: str
    """`llama`, `qwen2` (queries, keys and values have a bias) or `qwen3` (queries and keys are normalised)."""
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward part."""
    layers: int
    """Number of layers."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    """Width of a head."""
    vocabulary: int
    """Rows of the embedding."""
    tied: bool
    """Whether the output head is the embedding."""
    context: int
    """Most tokens of prompt and completion together."""

    @property
    def parameters(self) -> int:
        """Number of weights."""
        matrices = sum(rows * columns for rows, columns in self._matrices().values())
        bias = self._queries + 2 * self._keys if self.family == "qwen2" else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.family == "qwen3" else 0)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (matrices + bias + norms) + self.hidden

    def adapter_parameters(self, rank: int, targets: str | list[str] = "all-linear") -> int:
        """Number of weights of a low-rank adapter; the output head gets none.

        Args:
            rank: Its rank.
            targets: `all-linear`, a name of a layer's matrices such as `q_proj`, or a list of such names.
        """
        named = [targets] if isinstance(targets, str) else targets
        sizes = [sum(size) for name, size in self._matrices().items() if targets == "all-linear" or name in named]
        return self.layers * rank * sum(sizes)

    def cache_bytes(self, value_bytes: int) -> int:
        """Keys and values of one token in all layers, in bytes.

        Args:
            value_bytes: Of one number.
        """
        return 2 * self.layers * self._keys * value_bytes

    def activation_bytes(
        self, value_bytes: int, rank: int | None = None, *, autocast: bool = False, checkpointing: bool = False
    ) -> int:
        """Most that the backward pass keeps of one token, in bytes.

        Args:
            value_bytes: Of one weight: 4 or 2.
            rank: Of the adapters that are trained, on all matrices; None when all weights are.
            autocast: Whether layers compute in bfloat16 whatever the weights are in.
            checkpointing: Whether each layer is computed again in the backward pass: then the inputs of all layers are
                kept, and everything of one.
        """
        layer = self._layer_bytes(value_bytes, rank, autocast=autocast)
        kept = layer + self.layers * self.hidden * value_bytes if checkpointing else self.layers * layer
        return kept + 8 * self.hidden

    def copy_bytes(self, value_bytes: int, adapter: int | None = None, *, checkpointing: bool = False) -> int:
        """Copies of the weights that autocast has in bfloat16 while a pass lasts, in bytes.

        Args:
            value_bytes: Of one weight: 4 or 2.
            adapter: Weights of the adapter that is trained, which is in float32; None when all weights are.
            checkpointing: Whether each layer is computed again: weights that are not trained are then copied one layer
                at a time.
        """
        head = self.vocabulary * self.hidden
        layers = sum(rows * columns for rows, columns in self._matrices().values()) * self.layers
        if adapter is not None and checkpointing:
            layers //= self.layers
        return _COPY_BYTES * ((head + layers if value_bytes > _COPY_BYTES else 0) + (adapter or 0))

    def _layer_bytes(self, value_bytes: int, rank: int | None, *, autocast: bool) -> int:
        """What the backward pass of one layer keeps of one token."""
        number = "float32" if value_bytes == 4 else "bfloat16"
        is_cast = autocast and (rank is not None or value_bytes == 4)
        hidden, queries, keys, intermediate, normed = _KEPT[rank is not None, "autocast" if is_cast else number]
        floats = self.heads + 2
        if self.family == "qwen3":
            queries, keys, floats = queries + normed, keys + normed, floats + self.heads + self.kv_heads
        widths = (self.hidden, self._queries, self._keys, self.intermediate)
        layer = sum(each * width for each, width in zip((hidden, queries, keys, intermediate), widths, strict=True))
        return layer + 4 * floats + 7 * (rank or 0) * (_COPY_BYTES if is_cast else 4)

    @property
    def _queries(self) -> int:
        return self.heads * self.head_dim

    @property
    def _keys(self) -> int:
        return self.kv_heads * self.head_dim

    def _matrices(self) -> Mapping[str, tuple[int, int]]:
        """The matrices of one layer."""
        return {
            "q_proj": (self._queries, self.hidden),
            "k_proj": (self._keys, self.hidden),
            "v_proj": (self._keys, self.hidden),
            "o_proj": (self.hidden, self._queries),
            "gate_proj": (self.intermediate, self.hidden),
            "up_proj": (self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
        }


def shape_in_folder(folder: Path) -> ModelShape:
    """The shape that a transformers folder's `config.json` describes.

    Raises:
        SettingsError: If the file cannot be read, or describes another kind of model.
    """
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be read ({error}); expected a transformers config.json") from error
    if config.get("model_type") not in _FAMILIES or config.get("attention_bias") or config.get("mlp_bias"):
        raise SettingsError(
            f"{path}: model_type={config.get('model_type')!r} cannot be planned; expected one of "
            f"{', '.join(_FAMILIES)} without further biases; count its parameters by hand"
        )
    try:
        return ModelShape(
            family=config["model_type"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", False)),
            context=config.get("max_position_embeddings", 32_768),
        )
    except KeyError as error:
        raise SettingsError(f"{path}: {error} is missing; expected a whole transformers config.json") from error


def _shape(  # noqa: PLR0913  # a line of the table below
    family: str,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: tuple[int, int, int],
    vocabulary: int,
    *,
    tied: bool,
    context: int = 32_768,
) -> ModelShape:
    return ModelShape(
        family=family,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads[0],
        kv_heads=heads[1],
        head_dim=heads[2],
        vocabulary=vocabulary,
        tied=tied,
        context=context,
    )


_QWEN25_05B = _shape("qwen2", 896, 4864, 24, (14, 2, 64), 151_936, tied=True)
_QWEN25_15B = _shape("qwen2", 1536, 8960, 28, (12, 2, 128), 151_936, tied=True)
_QWEN25_3B = _shape("qwen2", 2048, 11_008, 36, (16, 2, 128), 151_936, tied=True)

KNOWN_SHAPES: Mapping[str, ModelShape] = {
    "Qwen/Qwen2.5-0.5B": _QWEN25_05B,
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN25_05B,
    "Qwen/Qwen2.5-1.5B": _QWEN25_15B,
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN25_15B,
    "Qwen/Qwen2.5-3B": _QWEN25_3B,
    "Qwen/Qwen2.5-3B-Instruct": _QWEN25_3B,
    "Qwen/Qwen2.5-7B": _shape("qwen2", 3584, 18_944, 28, (28, 4, 128), 152_064, tied=False, context=131_072),
    "Qwen/Qwen2.5-7B-Instruct": _shape("qwen2", 3584, 18_944, 28, (28, 4, 128), 152_064, tied=False),
    "Qwen/Qwen3-0.6B": _shape("qwen3", 1024, 3072, 28, (16, 8, 128), 151_936, tied=True, context=40_960),
    "Qwen/Qwen3-1.7B": _shape("qwen3", 2048, 6144, 28, (16, 8, 128), 151_936, tied=True, context=40_960),
    "Qwen/Qwen3-4B": _shape("qwen3", 2560, 9728, 36, (32, 8, 128), 151_936, tied=True, context=40_960),
    "Qwen/Qwen3-8B": _shape("qwen3", 4096, 12_288, 36, (32, 8, 128), 151_936, tied=False, context=40_960),
    "meta-llama/Llama-3.2-3B-Instruct": _shape(
        "llama", 3072, 8192, 28, (24, 8, 128), 128_256, tied=True, context=131_072
    ),
}
"""Hub name -> shape, as the models' published configurations have it."""
