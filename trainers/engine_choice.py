"""Engines outside this process, built from settings and handed to the policies that ask for them."""

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainers.config import PolicySettings
from trainers.engines.base import Engine
from trainers.engines.shared_engine import SharedEngine
from trainers.engines.transformers_engine import TransformersEngine
from trainers.engines.vllm_engine import VllmEngine
from trainers.team import LanguagePolicy

__all__ = ["attach_engines"]

_TOLERANCE = {"float32": 1e-2, "bfloat16": 0.2}
"""Coarser number format of engine and learner -> largest gap between their logprobs of the probe, in nats."""


def attach_engines(
    policies: Mapping[str, LanguagePolicy], settings: Mapping[str, PolicySettings], *, with_own_weights: bool = False
) -> list[Engine]:
    """Give each policy that wants vLLM an engine with its weights; adapters on one base and in one format share it.

    Args:
        policies: All policies that compute here.
        settings: Policy id -> settings.
        with_own_weights: Whether trained policies of the other kind also get an engine with a copy of the weights, so
            that it can generate while a learner changes them.

    Returns:
        The engines, to be closed when the policies have played their last.

    Raises:
        EngineStartError: If an engine does not start.
    """
    trained = {id(policies[policy_id].model) for policy_id in policies if not settings[policy_id].frozen}
    by_model: dict[tuple[str, str, int], list[str]] = {}
    for policy_id, policy in policies.items():
        kind, dtype = settings[policy_id].engine.kind, settings[policy_id].engine_dtype
        if kind == "vllm" or (with_own_weights and id(policy.model) in trained):
            by_model.setdefault((kind, dtype, id(policy.model)), []).append(policy_id)
    engines: list[Engine] = []
    for (chosen, sampled_in, _), policy_ids in by_model.items():
        start = _start_vllm if chosen == "vllm" else _start_copy
        engines.append(start({policy_id: policies[policy_id] for policy_id in policy_ids}, settings))
        shared = SharedEngine(engines[-1])
        for policy_id in policy_ids:
            policy = policies[policy_id]
            policy.engine = shared.port()
            policy.probe_tolerance = max(_TOLERANCE[sampled_in], _TOLERANCE[settings[policy_id].dtype])
            policy.probe()
    return engines


def _start_copy(policies: Mapping[str, LanguagePolicy], settings: Mapping[str, PolicySettings]) -> TransformersEngine:
    """An engine in this process over a copy of the model that policies share."""
    first_id, first = next(iter(policies.items()))
    return TransformersEngine(
        copy.deepcopy(first.model),
        eos_token_ids=first.stop_ids,
        pad_token_id=first.codec.tokenizer.pad_token_id or 0,  # type: ignore[attr-defined]
        max_rows=settings[first_id].engine.max_rows,
        version=first.version,
    )


def _start_vllm(policies: Mapping[str, LanguagePolicy], settings: Mapping[str, PolicySettings]) -> VllmEngine:
    """One engine for policies that share a model; the files it loads from are gone when it has."""
    first_id, first = next(iter(policies.items()))
    chosen = settings[first_id]
    with tempfile.TemporaryDirectory(prefix="mas-envs-engine-") as scratch:
        base, adapters = Path(scratch) / "base", {}
        if first.adapter is None:
            first.save(base)
        else:
            first.save_base(base)
            for policy_id, policy in policies.items():
                policy.save(Path(scratch) / policy_id)
                adapters[policy_id] = Path(scratch) / policy_id
        return VllmEngine(
            base,
            eos_token_ids=first.stop_ids,
            max_context=first.max_prompt_tokens + first.sampling.max_tokens,
            vocabulary=int(first.model.config.vocab_size),
            dtype=chosen.engine_dtype,
            python=chosen.engine.python,
            adapters=adapters,
            max_lora_rank=max([8, *(settings[each].lora.rank for each in policies if settings[each].lora)]),  # type: ignore[union-attr]
            max_rows=chosen.engine.max_rows,
            version=first.version,
            extra=chosen.engine.options,
        )
