"""The team: which policy speaks for which agent, and what a policy is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from adapters.llm import ChatCodec
from trainers.config import PolicySettings, SettingsError
from trainers.engines.base import Engine, Request, Sampling
from trainers.engines.transformers_engine import TransformersEngine
from trainers.quiet import no_progress_bars
from trainers.rollout import TurnReply, TurnRequest

__all__ = ["LanguagePolicy", "assign_agents", "load_policy"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def assign_agents(agents: Mapping[str, str], role_of: Mapping[str, str]) -> dict[str, str]:
    """Agent id -> policy id, for every agent of an environment.

    >>> assign_agents({"solver": "big", "verifier_0": "small"}, {"solver_0": "solver", "verifier_0": "verifier"})
    {'solver_0': 'big', 'verifier_0': 'small'}

    Args:
        agents: Role or agent id -> policy id, as in the settings.
        role_of: Agent id -> role, as the environment has them.

    Raises:
        SettingsError: If an agent has no policy, or a key names neither a role nor an agent.
    """
    known = {*role_of, *role_of.values()}
    if unknown := [key for key in agents if key not in known]:
        raise SettingsError(
            f"agents.{unknown[0]} is neither a role nor an agent of the environment; it has the roles "
            f"{', '.join(dict.fromkeys(role_of.values()))} and the agents {', '.join(role_of)}"
        )
    assigned = {agent_id: agents.get(agent_id, agents.get(role)) for agent_id, role in role_of.items()}
    if missing := [agent_id for agent_id, policy_id in assigned.items() if policy_id is None]:
        raise SettingsError(
            f"the agent {missing[0]!r} has no policy; add 'agents.{role_of[missing[0]]}: <policy>' to the settings"
        )
    return {agent_id: policy_id for agent_id, policy_id in assigned.items() if policy_id is not None}


@dataclass
class LanguagePolicy:
    """Weights, tokenizer and engine of one policy; answers turns."""

    policy_id: str
    """Its name in the settings."""
    model: Any
    """The transformers model."""
    codec: ChatCodec
    """Its tokenizer and chat template."""
    engine: Engine
    """What samples from it."""
    sampling: Sampling
    """How it samples."""
    max_prompt_tokens: int
    """Longer prompts are cut."""
    call_deadline_s: float | None = None
    """Seconds a completion may take; None waits for ever."""
    version: int = 0
    """+1 each time new weights reach the engine."""
    _prompts: dict[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        self._prompts = {}

    @property
    def num_in_flight(self) -> int:
        """Requests that were submitted and not yet given back."""
        assert self._prompts is not None
        return len(self._prompts)

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        """Render the prompts and queue them."""
        assert self._prompts is not None
        batch = []
        for request in requests:
            prompt_ids = self.codec.encode(request.messages, max_tokens=self.max_prompt_tokens)
            self._prompts[request.request_id] = prompt_ids
            batch.append(
                Request(
                    request_id=request.request_id,
                    prompt_ids=prompt_ids,
                    sampling=self.sampling,
                    seed=request.seed,
                    deadline_s=self.call_deadline_s,
                )
            )
        self.engine.submit(batch)

    def poll(self) -> list[TurnReply]:
        """Decode what the engine has finished."""
        assert self._prompts is not None
        replies = []
        for done in self.engine.poll():
            prompt_ids = self._prompts.pop(done.request_id)
            replies.append(
                TurnReply(
                    request_id=done.request_id,
                    text=self.codec.decode(done.token_ids),
                    prompt_ids=prompt_ids,
                    completion_ids=done.token_ids,
                    behaviour_logprobs=done.logprobs,
                    finish_reason=done.finish_reason,
                    policy_version=done.policy_version,
                    seconds=done.seconds,
                    error=done.error,
                    num_prompt_tokens=len(prompt_ids),
                    num_completion_tokens=len(done.token_ids),
                )
            )
        return replies

    def with_temperature(self, temperature: float | None) -> "LanguagePolicy":
        """The same policy, sampling at another temperature; None changes nothing."""
        if temperature is None:
            return self
        return replace(self, sampling=replace(self.sampling, temperature=temperature))

    def sync(self) -> None:
        """Tell the engine that there are new weights."""
        self.version += 1
        self.engine.sync(self.model.state_dict(), self.version)

    def save(self, folder: Path) -> None:
        """Write the policy as an ordinary transformers folder."""
        with no_progress_bars():
            self.model.save_pretrained(folder)
        self.codec.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]


def load_policy(
    policy_id: str,
    settings: PolicySettings,
    folder: str | Path,
    *,
    max_prompt_tokens: int | None = None,
    call_deadline_s: float | None = None,
    max_rows: int = 256,
) -> LanguagePolicy:
    """A policy from a transformers folder or hub name.

    Args:
        policy_id: Its name, for messages.
        settings: Its settings.
        folder: Where the model is.
        max_prompt_tokens: Longer prompts are cut; None is the model's context less the completion.
        call_deadline_s: Seconds a completion may take.
        max_rows: Most completions the engine samples at once.

    Raises:
        SettingsError: If the model cannot be loaded, has no chat template, or its context is too short.
    """
    try:
        with no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=_DTYPES[settings.dtype])
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"policies.{policy_id}.model={settings.model!r} cannot be loaded from {str(folder)!r}: {error}"
        ) from error
    if not tokenizer.chat_template:
        raise SettingsError(
            f"policies.{policy_id}.model={settings.model!r} has no chat template; use an instruction-tuned model"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    context = int(getattr(model.config, "max_position_embeddings", 0)) or 32_768
    longest = context - settings.sampling.max_tokens
    if longest < 1:
        raise SettingsError(
            f"policies.{policy_id}.sampling.max_tokens={settings.sampling.max_tokens} leaves no room for a prompt in "
            f"the model's context of {context} tokens; lower it"
        )
    engine = TransformersEngine(
        model, eos_token_ids=_stop_ids(model, tokenizer), pad_token_id=tokenizer.pad_token_id or 0, max_rows=max_rows
    )
    sampling = Sampling(
        max_tokens=settings.sampling.max_tokens,
        temperature=settings.sampling.temperature,
        top_p=settings.sampling.top_p,
        top_k=settings.sampling.top_k,
    )
    return LanguagePolicy(
        policy_id=policy_id,
        model=model,
        codec=ChatCodec(tokenizer),
        engine=engine,
        sampling=sampling,
        max_prompt_tokens=min(longest, max_prompt_tokens or longest),
        call_deadline_s=call_deadline_s,
    )


def _stop_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends a completion: the tokenizer's and the generation settings'."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return tuple(dict.fromkeys(token for token in (tokenizer.eos_token_id, *ids) if token is not None))
