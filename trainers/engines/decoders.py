"""How a causal language model runs over a `KvCache`: whole prompts first, then one token a row."""

import inspect
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trainers.engines.kv_cache import KvCache

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Decoder", "ModuleDecoder", "check_supported", "largest_context"]

_MASKABLE_ATTENTION = ("sdpa", "eager")


class Decoder(Protocol):
    """Runs one model; both calls write the new keys and values into the cache and advance it."""

    num_layers: int
    """Layers of the model."""
    transposed_keys: bool
    """Memory order of the keys it wants."""

    def refresh(self, *, force: bool = False) -> None:
        """Bring what is derived from the weights up to date; called before every run of decode steps.

        Args:
            force: Also where no parameter counts as changed: autograd does not count writes through `.data`.
        """
        ...

    def prefill(self, token_ids: "Tensor", last: "Tensor", cache: KvCache) -> "Tensor":
        """Logits [B, V] at the last token of each prompt.

        Args:
            token_ids: [B, T] int64, padded on the right.
            last: [B] int64 index of each prompt's last token.
            cache: Empty, with room for B rows of T columns.
        """
        ...

    def decode(self, token_ids: "Tensor", positions: "Tensor", cache: KvCache) -> "Tensor":
        """Logits [B, V] after one more token in each live row.

        Args:
            token_ids: [B] int64.
            positions: [B] int64 position of that token in its own row.
            cache: B live rows and room for one column.
        """
        ...


class ModuleDecoder:
    """Calls the module's own forward: any causal language model of transformers, with or without adapters."""

    transposed_keys = False

    def __init__(self, model: Any) -> None:  # Any: transformers and peft ship no types
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.num_layers = int(inner.config.get_text_config().num_hidden_layers)
        self._model = model
        named_cache = "cache" in inspect.signature(type(inner).forward).parameters
        self._cache_argument = "cache" if named_cache else "past_key_values"

    def refresh(self, *, force: bool = False) -> None:
        """Nothing to do: the module reads its own weights."""

    def prefill(self, token_ids: "Tensor", last: "Tensor", cache: KvCache) -> "Tensor":
        """See `Decoder.prefill`."""
        kept, column = torch.unique(last, return_inverse=True)
        positions = torch.arange(token_ids.shape[1], device=token_ids.device).expand_as(token_ids)
        logits = self._forward(token_ids, positions, None, cache, logits_to_keep=kept)
        cache.advance(token_ids.shape[1])
        return logits[torch.arange(len(last), device=last.device), column]

    def decode(self, token_ids: "Tensor", positions: "Tensor", cache: KvCache) -> "Tensor":
        """See `Decoder.decode`."""
        logits = self._forward(token_ids.unsqueeze(1), positions.unsqueeze(1), cache.bias(), cache, logits_to_keep=1)
        cache.advance(1)
        return logits[:, 0]

    def _forward(
        self,
        token_ids: "Tensor",
        positions: "Tensor",
        mask: "Tensor | None",
        cache: KvCache,
        *,
        logits_to_keep: "int | Tensor",
    ) -> "Tensor":
        output = self._model(
            input_ids=token_ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=logits_to_keep,
            **{self._cache_argument: cache.as_transformers_cache()},
        )
        logits: Tensor = output.logits
        return logits


def check_supported(config: Any) -> None:
    """Refuse models whose attention cannot be given a mask.

    Raises:
        ValueError: If the attention implementation or a layer type is not supported.
    """
    attention = config._attn_implementation
    if attention not in _MASKABLE_ATTENTION:
        msg = (
            f"attention implementation {attention!r} takes no explicit mask; expected one of {_MASKABLE_ATTENTION}: "
            "load the model with attn_implementation='sdpa'"
        )
        raise ValueError(msg)
    unknown = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if unknown:
        msg = (
            f"layers of type {sorted(unknown)!r} keep a state that rows cannot share; expected attention layers only: "
            "use the vLLM engine for this model"
        )
        raise ValueError(msg)


def largest_context(config: Any) -> int:
    """Most tokens, prompt and completion together, over which the model attends to everything."""
    context = int(config.max_position_embeddings)
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return min(context, int(config.sliding_window)) if sliding and config.sliding_window else context
