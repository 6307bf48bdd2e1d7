"""The team: which policy speaks for which agent, and what a policy is made of."""

import contextlib
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from adapters.llm import ChatCodec
from mas_envs.agent_keys import match_keys
from trainers.config import PolicySettings, SettingsError
from trainers.engines.base import Engine, Request, Sampling
from trainers.engines.sync_probe import check_in_sync
from trainers.engines.transformers_engine import TransformersEngine
from trainers.engines.weight_copy import base_weights
from trainers.quiet import no_progress_bars
from trainers.rollout import TurnReply, TurnRequest
from trainers.seeds import derive_seed

__all__ = ["LanguagePolicy", "assign_agents", "load_policy", "load_team"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def assign_agents(agents: Mapping[str, str], role_of: Mapping[str, str]) -> dict[str, str]:
    """Agent id -> policy id, for every agent of an environment.

    >>> assign_agents({"solver": "big", "solver_1": "small"}, {"solver_0": "solver", "solver_1": "solver"})
    {'solver_0': 'big', 'solver_1': 'small'}

    Args:
        agents: Agent id, role, or pattern such as `solver_*` -> policy id, in falling order of weight.
        role_of: Agent id -> role, as the environment has them.

    Raises:
        SettingsError: If an agent has no policy, or a key fits neither a role nor an agent.
    """
    match = match_keys(agents, role_of)
    if match.unknown:
        raise SettingsError(
            f"agents.{match.unknown[0]} is neither a role nor an agent of the environment; it has the roles "
            f"{', '.join(dict.fromkeys(role_of.values()))} and the agents {', '.join(role_of)}"
        )
    for agent_id, role in role_of.items():
        if agent_id not in match.key_of:
            raise SettingsError(f"the agent {agent_id!r} has no policy; add 'agents.{role}: <policy>' to the settings")
    return {agent_id: agents[key] for agent_id, key in match.key_of.items()}


@dataclass
class LanguagePolicy:
    """Weights, tokenizer and engine of one policy; answers turns."""

    policy_id: str
    """Its name in the settings."""
    model: Any
    """The transformers model, or a PEFT model that policies with adapters share."""
    codec: ChatCodec
    """Its tokenizer and chat template."""
    engine: Engine
    """What samples from it."""
    sampling: Sampling
    """How it samples."""
    max_prompt_tokens: int
    """Longer prompts are cut."""
    adapter: str | None = None
    """Name of its adapter; None is a policy of all the weights."""
    call_deadline_s: float | None = None
    """Seconds a completion may take; None waits for ever."""
    version: int = 0
    """+1 each time new weights reach the engine."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a completion."""
    probe_tolerance: float | None = None
    """Largest gap between the engine's and the model's logprobs after a sync, in nats; None asks nothing: the engine
    computes with the model itself."""
    _prompts: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    @property
    def num_in_flight(self) -> int:
        """Requests that were submitted and not yet given back."""
        return len(self._prompts)

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        """Render the prompts and queue them."""
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
                    adapter=self.adapter,
                    deadline_s=self.call_deadline_s,
                )
            )
        self.engine.submit(batch)

    def poll(self) -> list[TurnReply]:
        """Decode what the engine has finished."""
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

    def resampled(self, temperature: float | None = None, top_p: float | None = None) -> "LanguagePolicy":
        """The same policy, sampling at another temperature or top_p; None keeps what it has."""
        if temperature is None and top_p is None:
            return self
        return replace(self, sampling=self.sampling.changed(temperature, top_p), _prompts={})

    def trained_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Name -> parameter of what is trained: the adapter, or all weights."""
        named = dict(self.model.named_parameters())
        if self.adapter is None:
            return named
        return {name: value for name, value in named.items() if f".{self.adapter}." in name}

    def activate(self) -> None:
        """Make the model compute with this policy's weights."""
        if self.adapter is not None:
            self.model.set_adapter(self.adapter)

    @contextlib.contextmanager
    def base_only(self) -> Iterator[Any]:
        """The model with its adapters off."""
        with self.model.disable_adapter():
            yield self.model

    def sync(self) -> None:
        """Tell the engine that there are new weights."""
        self.version += 1
        self.engine.sync(self._weights(), self.version, self.adapter)
        self.probe()

    def probe(self) -> None:
        """Make sure that an engine with weights of its own has those of the model.

        Raises:
            EngineOutOfSyncError: If it has others.
        """
        if self.probe_tolerance is None:
            return
        self.activate()
        check_in_sync(
            self.engine,
            self.model,
            self.codec.encode([{"role": "user", "content": "1 + 1 = ?"}]),
            adapter=self.adapter,
            tolerance=self.probe_tolerance,
            owner=self.policy_id,
        )

    def save_base(self, folder: Path) -> None:
        """Write the model without its adapters as an ordinary transformers folder."""
        with no_progress_bars():
            base = self.model.get_base_model()
            base.save_pretrained(folder, state_dict=base_weights(self.model))

    def save(self, folder: Path) -> None:
        """Write the policy as an ordinary transformers folder, or as a PEFT folder when it is an adapter."""
        with no_progress_bars():
            if self.adapter is None:
                self.model.save_pretrained(folder)
            else:
                aside = folder.with_name(f".{folder.name}-adapter")
                self.model.save_pretrained(aside, selected_adapters=[self.adapter])
                (aside / self.adapter).rename(folder)
                shutil.rmtree(aside)
        self.codec.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]

    def _weights(self) -> dict[str, Tensor]:
        if self.adapter is None:
            return dict(self.model.state_dict())
        from peft import get_peft_model_state_dict

        return dict(get_peft_model_state_dict(self.model, adapter_name=self.adapter))


def load_team(
    policies: Mapping[str, PolicySettings],
    folders: Mapping[str, str | Path],
    *,
    adapters: Mapping[str, Path] | None = None,
    seed: int = 0,
    max_prompt_tokens: int | None = None,
    call_deadline_s: float | None = None,
) -> dict[str, LanguagePolicy]:
    """All policies of a team; those with an adapter on the same model share one copy of it.

    Args:
        policies: Policy id -> settings.
        folders: Policy id -> folder or hub name of its model (the base, for an adapter).
        adapters: Policy id -> PEFT folder of a trained adapter; new adapters are made where none is given.
        seed: Seed of new adapters.
        max_prompt_tokens: Longer prompts are cut; None is the model's context less the completion.
        call_deadline_s: Seconds a completion may take.

    Raises:
        SettingsError: If a model cannot be loaded or used.
    """
    shared: dict[str, Any] = {}
    team = {}
    for policy_id, settings in policies.items():
        base = shared.get(str(folders[policy_id])) if settings.lora else None
        team[policy_id] = load_policy(
            policy_id,
            settings,
            folders[policy_id],
            model=base,
            adapter_folder=(adapters or {}).get(policy_id),
            seed=seed,
            max_prompt_tokens=max_prompt_tokens,
            call_deadline_s=call_deadline_s,
        )
        if settings.lora:
            shared[str(folders[policy_id])] = team[policy_id].model
    return team


def load_policy(  # noqa: PLR0913  # one policy in all its forms; `load_team` is what most callers want
    policy_id: str,
    settings: PolicySettings,
    folder: str | Path,
    *,
    model: Any = None,
    adapter_folder: Path | None = None,
    seed: int = 0,
    max_prompt_tokens: int | None = None,
    call_deadline_s: float | None = None,
) -> LanguagePolicy:
    """A policy from a transformers folder or hub name.

    Args:
        policy_id: Its name, for messages and for its adapter.
        settings: Its settings.
        folder: Where the model is.
        model: A PEFT model around the same base that is loaded already; None loads the base.
        adapter_folder: A trained adapter; None makes a new one when the settings ask for one.
        seed: Seed of a new adapter.
        max_prompt_tokens: Longer prompts are cut; None is the model's context less the completion.
        call_deadline_s: Seconds a completion may take.

    Raises:
        SettingsError: If the model cannot be loaded, has no chat template or one that does not read
            `chat_template_kwargs`, or its context is too short.
    """
    tokenizer, model = _load_model(policy_id, settings, folder, model)
    if settings.lora is not None:
        model = _with_adapter(policy_id, settings, model, adapter_folder, seed)
    context = int(getattr(model.config, "max_position_embeddings", 0)) or 32_768
    longest = context - settings.sampling.max_tokens
    if longest < 1:
        raise SettingsError(
            f"policies.{policy_id}.sampling.max_tokens={settings.sampling.max_tokens} leaves no room for a prompt in "
            f"the model's context of {context} tokens; lower it"
        )
    sampling = Sampling(
        max_tokens=settings.sampling.max_tokens,
        temperature=settings.sampling.temperature,
        top_p=settings.sampling.top_p,
        top_k=settings.sampling.top_k,
    )
    stop_ids = _stop_ids(model, tokenizer)
    return LanguagePolicy(
        policy_id=policy_id,
        model=model,
        codec=ChatCodec(tokenizer, template_kwargs=settings.chat_template_kwargs),
        engine=TransformersEngine(
            model,
            eos_token_ids=stop_ids,
            pad_token_id=tokenizer.pad_token_id or 0,
            max_rows=settings.engine.max_rows,
        ),
        stop_ids=stop_ids,
        sampling=sampling,
        max_prompt_tokens=min(longest, max_prompt_tokens or longest),
        adapter=policy_id if settings.lora is not None else None,
        call_deadline_s=call_deadline_s,
    )


def _load_model(policy_id: str, settings: PolicySettings, folder: str | Path, model: Any) -> tuple[Any, Any]:
    try:
        with no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            if model is None:
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=_DTYPES[settings.dtype])
                model.to("cuda" if torch.cuda.is_available() else "cpu")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"policies.{policy_id}.model={settings.model!r} cannot be loaded from {str(folder)!r}: {error}"
        ) from error
    if not tokenizer.chat_template:
        raise SettingsError(
            f"policies.{policy_id}.model={settings.model!r} has no chat template; use an instruction-tuned model"
        )
    for name in settings.chat_template_kwargs:
        if not re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template)):
            raise SettingsError(
                f"policies.{policy_id}.chat_template_kwargs.{name} does nothing: the chat template of "
                f"{settings.model!r} has no such name; expected one that it reads: check the spelling, or remove it"
            )
    return tokenizer, model


def _with_adapter(policy_id: str, settings: PolicySettings, model: Any, adapter_folder: Path | None, seed: int) -> Any:
    """The PEFT model with one adapter more, trained or new."""
    from peft import LoraConfig, PeftModel, get_peft_model

    assert settings.lora is not None
    is_wrapped = hasattr(model, "peft_config")
    config = LoraConfig(
        r=settings.lora.rank,
        lora_alpha=settings.lora.alpha,
        lora_dropout=settings.lora.dropout,
        target_modules=settings.lora.targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)  # peft's own call
        torch.manual_seed(derive_seed(seed, "adapter", policy_id))
        if adapter_folder is not None and is_wrapped:
            model.load_adapter(adapter_folder, adapter_name=policy_id, is_trainable=True)
        elif adapter_folder is not None:
            return PeftModel.from_pretrained(model, adapter_folder, adapter_name=policy_id, is_trainable=True)
        elif is_wrapped:
            model.add_adapter(policy_id, config)
        else:
            return get_peft_model(model, config, adapter_name=policy_id)
    return model


def _stop_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends a completion: the tokenizer's and the generation settings'."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return tuple(dict.fromkeys(token for token in (tokenizer.eos_token_id, *ids) if token is not None))
