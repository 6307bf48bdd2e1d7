"""What one policy of a run needs: weights, gradients, optimizer, activations, engine, disk."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.config import Settings
from trainers.model_shapes import KNOWN_SHAPES, ModelShape, shape_in_folder
from trainers.policy_settings import TINY, PolicySettings

__all__ = ["GIB", "PolicyPlan", "plan_policy", "shape_of"]

GIB = 2**30
"""Bytes of the unit that GPUs are sold in."""

_BYTES = {"float32": 4, "bfloat16": 2}
_ADAPTER_BYTES = 4
"""Adapters are kept in float32 whatever the base is."""
_HUB_BYTES = 2
"""Published weights are in bfloat16."""
_LOGIT_ELEMENTS = 32 * 2**20
_VLLM_SHARE = 0.9
_UNKNOWN_CONTEXT = 32_768


@dataclass(frozen=True, kw_only=True)
class PolicyPlan:
    """Bytes that one policy needs; 0 where nothing is trained, and everywhere when its shape is not known."""

    policy_id: str
    """Its name in the settings."""
    model: str
    """Folder or hub name, or the endpoint's model."""
    agents: tuple[str, ...]
    """Agents, roles or patterns that it plays."""
    kind: str
    """`all weights`, `adapter`, `frozen` or `endpoint`."""
    dtype: str
    """Of the weights."""
    engine: str
    """What generates: `transformers`, `vllm` or `endpoint`."""
    engine_dtype: str = ""
    """What it generates in."""
    parameters: int | None = None
    """Weights of the model; None when its shape is not known."""
    trained_parameters: int = 0
    """Weights that are trained."""
    max_prompt_tokens: int = 0
    """Longest prompt."""
    max_completion_tokens: int = 0
    """Longest completion."""
    microbatch_tokens: int = 0
    """Tokens of the largest forward pass with a gradient."""
    weights: int = 0
    """The model, adapter included."""
    gradients: int = 0
    """One copy."""
    moments: int = 0
    """Both moments of AdamW."""
    reference: int = 0
    """The copy that a KL penalty compares with."""
    activations: int = 0
    """What the backward pass of the largest microbatch keeps: of all layers, or with gradient checkpointing of one, and
    the inputs of all."""
    copies: int = 0
    """Weights in bfloat16 that autocast makes while a pass lasts."""
    logits: int = 0
    """The largest piece of logits, with what is computed from it."""
    update: int = 0
    """Peak of an update, beside what is always there: a backward pass, or the step after it, with its gradients. There
    are two copies of these while a policy of one agent is clipped, and up to three for a policy of several."""
    cache_per_token: int = 0
    """Keys and values of a token."""
    cache: int = 0
    """Keys and values of `max_rows` completions of full length; for `transformers` engines."""
    engine_reserved: int = 0
    """What a vLLM process takes on the device: weights and cache."""
    engine_rows: float = 0.0
    """Completions of full length for which a vLLM process has room beside the weights."""
    download: int = 0
    """Size of the published weights, when they come from the hub."""
    checkpoint: int = 0
    """Its part of a checkpoint."""
    best: int = 0
    """Its part of `best/`."""


def shape_of(policy: PolicySettings, settings: Settings) -> ModelShape | None:
    """The shape of a policy's model; None for a hub name that is not in the table.

    Raises:
        SettingsError: If the model is a folder whose `config.json` cannot be used.
    """
    if policy.model == TINY:
        tiny = policy.tiny_model or settings.tiny_model
        return ModelShape(
            family="qwen3",
            hidden=tiny.hidden_size,
            intermediate=tiny.intermediate_size,
            layers=tiny.num_layers,
            heads=tiny.num_heads,
            kv_heads=tiny.num_heads,
            head_dim=tiny.hidden_size // tiny.num_heads,
            vocabulary=tiny.vocab_size,
            tied=True,
            context=tiny.max_context,
        )
    if Path(policy.model).is_dir():
        return shape_in_folder(Path(policy.model))
    return KNOWN_SHAPES.get(policy.model)


def plan_policy(policy_id: str, settings: Settings, *, gpu_bytes: int, num_rollouts: int) -> PolicyPlan:
    """What a policy needs.

    Args:
        policy_id: Its name.
        settings: Settings of the run.
        gpu_bytes: Memory of one device.
        num_rollouts: Rollouts that are collected together.

    Raises:
        SettingsError: If the model is a folder whose `config.json` cannot be used.
    """
    policy = settings.policies[policy_id]
    agents = tuple(agent for agent, played_by in settings.agents.items() if played_by == policy_id)
    most = policy.sampling.max_tokens
    if policy.endpoint is not None:
        asked = settings.rollout.max_prompt_tokens or _UNKNOWN_CONTEXT
        return PolicyPlan(
            policy_id=policy_id,
            model=policy.endpoint.model,
            agents=agents,
            kind="endpoint",
            dtype="",
            engine="endpoint",
            max_prompt_tokens=asked,
            max_completion_tokens=most,
        )
    kind = "frozen" if policy.frozen else "adapter" if policy.lora else "all weights"
    shape = shape_of(policy, settings)
    room = (shape.context if shape else _UNKNOWN_CONTEXT) - most
    longest = max(1, min(room, settings.rollout.max_prompt_tokens or room))
    known: dict[str, Any] = {}
    if shape is not None:
        known.update(_bytes(policy, settings, shape, agents, longest))
        known.update(_engine_bytes(policy, shape, longest + most, gpu_bytes, num_rollouts))
    return PolicyPlan(
        policy_id=policy_id,
        model=policy.model,
        agents=agents,
        kind=kind,
        dtype=policy.dtype,
        engine=policy.engine.kind,
        engine_dtype=policy.engine_dtype,
        max_prompt_tokens=longest,
        max_completion_tokens=most,
        parameters=None if shape is None else shape.parameters,
        **known,
    )


def _bytes(
    policy: PolicySettings, settings: Settings, shape: ModelShape, agents: Sequence[str], longest_prompt: int
) -> dict[str, int]:
    """Memory of the learner, and disk."""
    size = _BYTES[policy.dtype]
    adapter = shape.adapter_parameters(policy.lora.rank, policy.lora.targets) if policy.lora else 0
    trained = 0 if policy.frozen else adapter or shape.parameters
    trained_size = _ADAPTER_BYTES if policy.lora else size
    gradients = trained * trained_size
    tokens = max(longest_prompt + policy.sampling.max_tokens, settings.token_budget) if trained else 0
    autocast, checkpointing = policy.learner.autocast == "bfloat16", policy.learner.gradient_checkpointing
    rank = policy.lora.rank if policy.lora else None
    activations = tokens * shape.activation_bytes(size, rank, autocast=autocast, checkpointing=checkpointing)
    copies = shape.copy_bytes(size, adapter if policy.lora else None, checkpointing=checkpointing)
    copies = copies if autocast and trained else 0
    elements = min(tokens * shape.vocabulary, _LOGIT_ELEMENTS)
    computed = _BYTES["bfloat16"] if autocast else size
    logits = elements * (2 * computed + 3 * 4)  # as computed, in float32, normalised, and both gradients
    is_shared = len(agents) > 1
    in_backward, in_step = (2, 3) if is_shared else (1, 1 if policy.max_grad_norm is None else 2)
    needs_reference = settings.algorithm.kl.coef > 0.0 and trained and not policy.lora
    saved = adapter * _ADAPTER_BYTES if policy.lora else shape.parameters * size
    is_on_hub = policy.model != TINY and not Path(policy.model).is_dir()
    return {
        "trained_parameters": trained,
        "microbatch_tokens": tokens,
        "weights": shape.parameters * size + adapter * _ADAPTER_BYTES,
        "gradients": gradients,
        "moments": 2 * gradients,
        "reference": shape.parameters * size if needs_reference else 0,
        "activations": activations,
        "copies": copies,
        "logits": logits,
        "update": max(in_backward * gradients + activations + copies + logits, in_step * gradients),
        "cache_per_token": shape.cache_bytes(_BYTES[policy.engine_dtype]),
        "download": shape.parameters * _HUB_BYTES if is_on_hub else 0,
        "checkpoint": saved + 2 * gradients,
        "best": saved,
    }


def _engine_bytes(
    policy: PolicySettings, shape: ModelShape, tokens: int, gpu_bytes: int, num_rollouts: int
) -> dict[str, float]:
    """Memory of what generates."""
    size = _BYTES[policy.engine_dtype]
    row = tokens * shape.cache_bytes(size)
    if policy.engine.kind != "vllm":
        return {"cache": min(policy.engine.max_rows, num_rollouts) * row}
    weights = shape.parameters * size
    share = float(policy.engine.options.get("gpu_memory_utilization", _VLLM_SHARE)) * gpu_bytes
    rows = max(0.0, math.floor(10 * (share - weights) / row) / 10)
    return {"engine_reserved": max(int(share), weights + row), "engine_rows": rows}
