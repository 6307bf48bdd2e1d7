"""Engines outside this process, built from settings and handed to the policies that ask for them."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainers.config import PolicySettings
from trainers.engines.shared_engine import SharedEngine
from trainers.engines.vllm_engine import VllmEngine
from trainers.team import LanguagePolicy

__all__ = ["attach_engines"]

_TOLERANCE = {"float32": 1e-2, "bfloat16": 0.2}
"""Largest gap between the engine's and the learner's logprobs of the probe, in nats."""


def attach_engines(policies: Mapping[str, LanguagePolicy], settings: Mapping[str, PolicySettings]) -> list[VllmEngine]:
    """Give each policy that wants vLLM an engine with its weights; adapters on one base share one.

    Returns:
        The engines, to be closed when the policies have played their last.

    Raises:
        EngineStartError: If an engine does not start.
    """
    wanted = [policy_id for policy_id in policies if settings[policy_id].engine.kind == "vllm"]
    by_model: dict[int, list[str]] = {}
    for policy_id in wanted:
        by_model.setdefault(id(policies[policy_id].model), []).append(policy_id)
    engines = []
    for policy_ids in by_model.values():
        engines.append(_start({policy_id: policies[policy_id] for policy_id in policy_ids}, settings))
        shared = SharedEngine(engines[-1])
        for policy_id in policy_ids:
            policy = policies[policy_id]
            policy.engine = shared.port()
            policy.probe_tolerance = _TOLERANCE[settings[policy_id].dtype]
            policy.probe()
    return engines


def _start(policies: Mapping[str, LanguagePolicy], settings: Mapping[str, PolicySettings]) -> VllmEngine:
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
            dtype=chosen.dtype,
            python=chosen.engine.python,
            adapters=adapters,
            max_lora_rank=max([8, *(settings[each].lora.rank for each in policies if settings[each].lora)]),  # type: ignore[union-attr]
            max_rows=chosen.engine.max_rows,
            version=first.version,
            extra=chosen.engine.options,
        )
