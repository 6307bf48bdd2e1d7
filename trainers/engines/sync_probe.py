"""The probe after each weight sync: an engine must give a fixed prompt the logprobs that the learner's weights give."""

from collections.abc import Sequence
from typing import Any

import torch

from mas_envs.errors import MasEnvsError
from trainers.engines.base import Engine, Request, Sampling

__all__ = ["EngineOutOfSyncError", "check_in_sync", "probe_gap"]

_TOKENS = 8


class EngineOutOfSyncError(MasEnvsError, RuntimeError):
    """An engine that samples from other weights than the learner trains."""


def probe_gap(engine: Engine, model: Any, prompt_ids: Sequence[int], *, adapter: str | None = None) -> float:
    """Largest difference between the engine's and the model's logprobs of a greedy completion, in nats.

    Args:
        engine: Idle.
        model: A transformers model, or a PEFT model whose active adapter is `adapter`.
        prompt_ids: At least one token.
        adapter: Adapter to ask the engine for.

    Raises:
        EngineOutOfSyncError: If the engine gives no completion.
    """
    engine.submit([Request("probe", tuple(prompt_ids), Sampling(max_tokens=_TOKENS, temperature=0.0), 0, adapter)])
    completion = engine.poll()[0]
    if not completion.token_ids:
        raise EngineOutOfSyncError(f"the engine failed at the probe after a sync ({completion.error})")
    ids = torch.tensor([[*prompt_ids, *completion.token_ids]], device=next(model.parameters()).device)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt_ids) - 1 : -1].float()
    model.train(was_training)
    chosen = torch.log_softmax(logits, dim=-1)[torch.arange(len(logits)), list(completion.token_ids)]
    return float((chosen.cpu() - torch.tensor(completion.logprobs)).abs().max())


def check_in_sync(
    engine: Engine, model: Any, prompt_ids: Sequence[int], *, adapter: str | None, tolerance: float, owner: str
) -> None:
    """Refuse an engine whose weights are not the model's.

    Args:
        engine: Idle.
        model: The learner's.
        prompt_ids: At least one token.
        adapter: Adapter to ask the engine for.
        tolerance: Largest gap, in nats.
        owner: Policy, for the message.

    Raises:
        EngineOutOfSyncError: If the gap is larger.
    """
    gap = probe_gap(engine, model, prompt_ids, adapter=adapter)
    if not gap <= tolerance:
        raise EngineOutOfSyncError(
            f"policies.{owner}: after the weight sync the engine's logprobs of a fixed prompt are off by {gap:.3g} "
            f"nats; expected at most {tolerance:g}: the engine samples from other weights, gradients would be wrong; "
            "use engine.kind=transformers, or a vLLM version this project was tested with"
        )
