"""A lean forward for small Llama, Qwen2 and Qwen3 models: the same mathematics in a quarter of the calls.

With 64 hidden units most of a decode step of transformers is spent between the kernels. Projections of the same input
are held side by side, in copies that are made anew whenever a parameter has changed.
"""

from collections.abc import Callable
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
_MOST_PARAMETERS = 50_000_000  # beyond, kernels take all the time and the copies would cost memory
_FIXED_ROPES = ("default", "linear", "llama3")


def can_fuse(model: Any) -> bool:
    """Whether `FusedDecoder` computes what the model's own forward does.

    It must be exactly one of the known classes, small, in float32, without adapters, quantised layers, hooks or rotary
    frequencies that change with the length.
    """
    if type(model) not in _FAMILIES:
        return False
    rotary = model.model.rotary_emb
    head_size = model.model.layers[0].self_attn.head_dim
    modules = list(model.modules())
    return (
        sum(parameter.numel() for parameter in model.parameters()) <= _MOST_PARAMETERS
        and model.config.hidden_act == "silu"
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
class _Layer:
    """Weights of one layer, those that see the same input side by side."""

    input_norm: nn.Module
    post_norm: nn.Module
    qkv: "tuple[Tensor, Tensor | None]"
    """Weight and bias of query, key and value."""
    head_scale: "Tensor | None"
    """[heads of query and key, D] weights of the norms inside the heads; None if there are none."""
    head_eps: float
    out: "tuple[Tensor, Tensor | None]"
    gate_up: "tuple[Tensor, Tensor | None]"
    down: "tuple[Tensor, Tensor | None]"


@dataclass(frozen=True)
class _Rotation:
    """Rotary tables of the tokens of one call, the sine signed for a plain swap of the two halves."""

    cosine: "Tensor"
    """[B * Q, 1, D]."""
    sine: "Tensor"
    """[B * Q, 1, D]; the first half negated."""


class FusedDecoder:
    """See `Decoder`; only for models that pass `can_fuse`."""

    transposed_keys = True

    def __init__(self, model: Any) -> None:
        config = model.config
        self._model = model
        self.num_layers = int(config.num_hidden_layers)
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._head_size = int(model.model.layers[0].self_attn.head_dim)
        self._scale = self._head_size**-0.5
        self._layers: list[_Layer] = []
        self._parameters = list(model.parameters())
        self._weights_key: list[tuple[int, int]] = []
        self._cosine, self._sine = self._tables(128)

    def refresh(self, *, force: bool = False) -> None:
        """See `Decoder.refresh`."""
        if force:
            self._parameters = list(self._model.parameters())
        key = [(parameter.data_ptr(), parameter._version) for parameter in self._parameters]
        if force or key != self._weights_key:
            self._weights_key = key
            self._layers = [_fuse(layer) for layer in self._model.model.layers]
            self._cosine, self._sine = self._tables(len(self._cosine))

    def prefill(self, token_ids: "Tensor", last: "Tensor", cache: KvCache) -> "Tensor":
        """See `Decoder.prefill`."""
        rows, columns = token_ids.shape
        if columns > len(self._cosine):
            self._cosine, self._sine = self._tables(2 * columns)
        rotation = _Rotation(self._cosine[:columns].repeat(rows, 1, 1), self._sine[:columns].repeat(rows, 1, 1))
        grouped = self._heads != self._kv_heads

        def attend(layer: int, query: "Tensor", key: "Tensor", value: "Tensor") -> "Tensor":
            shape = (rows, columns, -1, self._head_size)
            query, key, value = (part.reshape(shape).transpose(1, 2) for part in (query, key, value))
            cache.write(layer, key, value)
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
            return mixed.transpose(1, 2).reshape(rows * columns, -1)

        hidden = self._run(token_ids.flatten(), rotation, attend)
        cache.advance(columns)
        return self._logits(hidden[torch.arange(rows, device=last.device) * columns + last])

    def decode(self, token_ids: "Tensor", positions: "Tensor", cache: KvCache) -> "Tensor":
        """See `Decoder.decode`."""
        if cache.length >= len(self._cosine):
            self._cosine, self._sine = self._tables(2 * cache.length)
        rows, size = len(token_ids), self._head_size
        column = cache.open_column()

        def attend(layer: int, query: "Tensor", key: "Tensor", value: "Tensor") -> "Tensor":
            column.key_slots[layer].copy_(key)
            column.value_slots[layer].copy_(value)
            grouped = query.reshape(rows * self._kv_heads, -1, size)
            scores = torch.baddbmm(column.bias, grouped, column.keys[layer], alpha=self._scale)
            return torch.bmm(scores.softmax(-1), column.values[layer]).view(rows, -1)

        hidden = self._run(
            token_ids, _Rotation(self._cosine.index_select(0, positions), self._sine.index_select(0, positions)), attend
        )
        cache.advance(1)
        return self._logits(hidden)

    def _run(self, token_ids: "Tensor", rotation: _Rotation, attend: "_Attend") -> "Tensor":
        """Hidden states [B * Q, hidden] before the last norm, of token ids [B * Q]."""
        hidden = functional.embedding(token_ids, self._model.model.embed_tokens.weight)
        rotated = self._heads + self._kv_heads
        for index, layer in enumerate(self._layers):
            qkv = _linear(_norm(hidden, layer.input_norm), layer.qkv).view(len(hidden), -1, self._head_size)
            both = qkv[:, :rotated]
            if layer.head_scale is not None:
                both = _rms_norm(both, layer.head_scale, layer.head_eps)
            left, right = both.chunk(2, dim=-1)
            both = torch.addcmul(both * rotation.cosine, torch.cat([right, left], dim=-1), rotation.sine)
            mixed = attend(index, both[:, : self._heads], both[:, self._heads :], qkv[:, rotated:])
            hidden = _add_linear(hidden, mixed, layer.out)
            gate, up = _linear(_norm(hidden, layer.post_norm), layer.gate_up).chunk(2, dim=-1)
            hidden = _add_linear(hidden, functional.silu(gate).mul_(up), layer.down)
        return hidden

    def _logits(self, hidden: "Tensor") -> "Tensor":
        head = self._model.lm_head
        return functional.linear(_norm(hidden, self._model.model.norm), head.weight, head.bias)

    def _tables(self, length: int) -> "tuple[Tensor, Tensor]":
        """Cosine and signed sine, each [length, 1, D], from the module's own frequencies and scaling."""
        weight = self._model.model.embed_tokens.weight
        cosine, sine = self._model.model.rotary_emb(weight, torch.arange(length, device=weight.device)[None])
        sign = torch.ones_like(sine[0])
        sign[:, : self._head_size // 2] = -1
        return cosine[0].detach().unsqueeze(1), (sine[0].detach() * sign).unsqueeze(1)


_Attend = Callable[[int, "Tensor", "Tensor", "Tensor"], "Tensor"]
"""(layer, query, key, value), each [B * Q, heads, D] -> [B * Q, all query heads * D]."""


def _fuse(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    head_scale, head_eps = None, 0.0
    if hasattr(attention, "q_norm"):
        query_heads = attention.q_proj.out_features // attention.head_dim
        key_heads = attention.k_proj.out_features // attention.head_dim
        scales = [attention.q_norm.weight.expand(query_heads, -1), attention.k_norm.weight.expand(key_heads, -1)]
        head_scale, head_eps = torch.cat(scales).detach(), attention.q_norm.variance_epsilon
    return _Layer(
        input_norm=layer.input_layernorm,
        post_norm=layer.post_attention_layernorm,
        qkv=_side_by_side(attention.q_proj, attention.k_proj, attention.v_proj),
        head_scale=head_scale,
        head_eps=head_eps,
        out=_side_by_side(attention.o_proj),
        gate_up=_side_by_side(mlp.gate_proj, mlp.up_proj),
        down=_side_by_side(mlp.down_proj),
    )


def _side_by_side(*linears: Any) -> "tuple[Tensor, Tensor | None]":
    """Weight [inputs, outputs], contiguous, and bias [outputs]."""
    weight = torch.cat([linear.weight for linear in linears]).detach().t().contiguous()
    if linears[0].bias is None:
        return weight, None
    return weight, torch.cat([linear.bias for linear in linears]).detach()


def _norm(hidden: "Tensor", norm: Any) -> "Tensor":
    return _rms_norm(hidden, norm.weight, norm.variance_epsilon)


def _rms_norm(hidden: "Tensor", weight: "Tensor", eps: float) -> "Tensor":
    """As `functional.rms_norm`, which on a CPU is a dozen small operations and takes twice the time at this size."""
    size = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)
    mean_square = torch.addcmul(size.new_full((), eps), size, size, value=1 / hidden.shape[-1])
    return (hidden * mean_square.rsqrt_()).mul_(weight)


def _linear(hidden: "Tensor", linear: "tuple[Tensor, Tensor | None]") -> "Tensor":
    weight, bias = linear
    return torch.mm(hidden, weight) if bias is None else torch.addmm(bias, hidden, weight)


def _add_linear(residual: "Tensor", hidden: "Tensor", linear: "tuple[Tensor, Tensor | None]") -> "Tensor":
    weight, bias = linear
    return torch.addmm(residual if bias is None else residual + bias, hidden, weight)
