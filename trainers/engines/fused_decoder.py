"""A lean forward for small Llama, Qwen2 and Qwen3 models: the module's own weights, a third of the calls.

With 64 hidden units most of a decode step of transformers is spent between the kernels. Same mathematics in the same
precision; the parameters are read from the module at each call, so nothing can be stale.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from trainers.engines.kv_cache import KvCache

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FusedDecoder", "can_fuse"]

_FAMILIES = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
_FIXED_ROPES = ("default", "linear", "llama3")


def can_fuse(model: Any) -> bool:
    """Whether `FusedDecoder` computes what the model's own forward does.

    It must be exactly one of the known classes in float32, without adapters, quantised layers, hooks or rotary
    frequencies that change with the length.
    """
    if type(model) not in _FAMILIES:
        return False
    rotary = model.model.rotary_emb
    head_size = model.model.layers[0].self_attn.head_dim
    modules = list(model.modules())
    return (
        model.config.hidden_act == "silu"
        and rotary.rope_type in _FIXED_ROPES
        and 2 * len(rotary.inv_freq) == head_size
        and all(parameter.dtype == torch.float32 for parameter in model.parameters())
        and all(_is_plain(module) for module in modules if next(module.children(), None) is None)
        and not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    )


def _is_plain(leaf: nn.Module) -> bool:
    """Whether a module without children is one that `FusedDecoder` knows."""
    has_parameters = next(leaf.parameters(), None) is not None
    return not has_parameters or type(leaf) in (nn.Linear, nn.Embedding) or type(leaf).__name__.endswith("RMSNorm")


@dataclass(frozen=True)
class _Rotation:
    """Rotary tables of the tokens of one call, the sine signed for a plain swap of the two halves."""

    cosine: "Tensor"
    """[B, Q, 1, D]."""
    sine: "Tensor"
    """[B, Q, 1, D]; the first half negated."""


class FusedDecoder:
    """See `Decoder`; only for models that pass `can_fuse`."""

    transposed_keys = True

    def __init__(self, model: Any) -> None:
        config = model.config
        self._model = model
        self.num_layers = int(config.num_hidden_layers)
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._head_size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self._scale = self._head_size**-0.5
        self._cosine, self._sine = self._tables(128)

    def prefill(self, token_ids: "Tensor", last: "Tensor", cache: KvCache) -> "Tensor":
        """See `Decoder.prefill`."""
        rows, columns = token_ids.shape
        if columns > len(self._cosine):
            self._cosine, self._sine = self._tables(2 * columns)
        rotation = _Rotation(self._cosine[None, :columns], self._sine[None, :columns])
        hidden = self._run(token_ids, rotation, cache)
        return self._logits(hidden.view(rows, columns, -1)[torch.arange(rows, device=last.device), last])

    def decode(self, token_ids: "Tensor", positions: "Tensor", cache: KvCache) -> "Tensor":
        """See `Decoder.decode`."""
        if cache.length >= len(self._cosine):
            self._cosine, self._sine = self._tables(2 * cache.length)
        rotation = _Rotation(self._cosine[positions].unsqueeze(1), self._sine[positions].unsqueeze(1))
        return self._logits(self._run(token_ids.unsqueeze(1), rotation, cache))

    def _run(self, token_ids: "Tensor", rotation: _Rotation, cache: KvCache) -> "Tensor":
        """Hidden states [B * Q, hidden] before the last norm."""
        rows, queries = token_ids.shape
        model = self._model.model
        hidden = functional.embedding(token_ids.reshape(-1), model.embed_tokens.weight)
        for index, layer in enumerate(model.layers):
            attention, mlp = layer.self_attn, layer.mlp
            normed = _norm(hidden, layer.input_layernorm)
            query, key, value = self._project(attention, normed, rotation, rows, queries)
            keys, values = cache.write(index, key.transpose(1, 2), value.transpose(1, 2))
            mixed = self._attend(query, keys, values, cache)
            hidden = _add_projection(hidden, mixed, attention.o_proj)
            normed = _norm(hidden, layer.post_attention_layernorm)
            gated = functional.silu(_project(normed, mlp.gate_proj)).mul_(_project(normed, mlp.up_proj))
            hidden = _add_projection(hidden, gated, mlp.down_proj)
        cache.advance(queries)
        return hidden

    def _project(
        self, attention: Any, normed: "Tensor", rotation: _Rotation, rows: int, queries: int
    ) -> "tuple[Tensor, Tensor, Tensor]":
        """Query, key and value, each [B, Q, heads, D], the first two rotated."""
        query = _project(normed, attention.q_proj).view(rows, queries, self._heads, self._head_size)
        key = _project(normed, attention.k_proj).view(rows, queries, self._kv_heads, self._head_size)
        value = _project(normed, attention.v_proj).view(rows, queries, self._kv_heads, self._head_size)
        if hasattr(attention, "q_norm"):
            query, key = _norm(query, attention.q_norm), _norm(key, attention.k_norm)
        both = torch.cat([query, key], dim=2)
        left, right = both.chunk(2, dim=-1)
        both = torch.addcmul(both * rotation.cosine, torch.cat([right, left], dim=-1), rotation.sine)
        return both[:, :, : self._heads], both[:, :, self._heads :], value

    def _attend(self, query: "Tensor", keys: "Tensor", values: "Tensor", cache: KvCache) -> "Tensor":
        """Attention output [B * Q, heads * D]; one query sees its whole row, several are a prompt from column 0."""
        rows, queries = query.shape[:2]
        if queries > 1 or not cache.length:
            query = query.transpose(1, 2)
            grouped = self._heads != self._kv_heads
            mixed = functional.scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=grouped)
            return mixed.transpose(1, 2).reshape(rows * queries, -1)
        shared = query.reshape(rows, self._kv_heads, -1, self._head_size)
        scores = torch.matmul(shared, keys.transpose(2, 3)).mul_(self._scale).add_(cache.bias())
        return torch.matmul(scores.softmax(-1), values).view(rows, -1)

    def _logits(self, hidden: "Tensor") -> "Tensor":
        return _project(_norm(hidden, self._model.model.norm), self._model.lm_head)

    def _tables(self, length: int) -> "tuple[Tensor, Tensor]":
        """Cosine and signed sine, each [length, 1, D], from the module's own frequencies and scaling."""
        weight = self._model.model.embed_tokens.weight
        cosine, sine = self._model.model.rotary_emb(weight, torch.arange(length, device=weight.device)[None])
        sign = torch.ones_like(sine[0])
        sign[:, : self._head_size // 2] = -1
        return cosine[0].detach().unsqueeze(1), (sine[0].detach() * sign).unsqueeze(1)


def _norm(hidden: "Tensor", norm: Any) -> "Tensor":
    return functional.rms_norm(hidden, (hidden.shape[-1],), norm.weight, norm.variance_epsilon)


def _project(hidden: "Tensor", linear: Any) -> "Tensor":
    return functional.linear(hidden, linear.weight, linear.bias)


def _add_projection(residual: "Tensor", hidden: "Tensor", linear: Any) -> "Tensor":
    if linear.bias is not None:
        residual = residual + linear.bias
    return torch.addmm(residual, hidden, linear.weight.t())
