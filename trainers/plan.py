"""What a run needs before anything is downloaded: memory, disk, calls and tokens; estimates from settings alone."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from trainers.config import Settings
from trainers.policy_plan import GIB, PolicyPlan, plan_policy
from trainers.turn_limits import TurnLimits, turn_limits

__all__ = ["RunPlan", "make_plan"]

_SMALLEST_STEP = 2.0**-14
"""Half the distance between bfloat16 numbers of the size of usual weights, 0.016 to 0.031: smaller steps round away."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run needs; bytes unless said otherwise."""

    name: str
    """Name of the recipe."""
    gpu_gib: float
    """Memory of one device, GiB."""
    policies: tuple[PolicyPlan, ...]
    """What each policy needs."""
    resident: int
    """What is on the device all the time: weights, moments, references, vLLM's share."""
    update_peak: int
    """The largest update of a policy; they are updated one after another."""
    cache_peak: int
    """Keys and values while in-process engines generate."""
    num_rollouts: int
    """Rollouts of an iteration; dynamic sampling may draw more."""
    max_calls: int | None
    """Most completions of an iteration; None where the environment's rules are not known here."""
    max_tokens: int | None
    """Most prompt and completion tokens of an iteration; as `max_calls`."""
    iterations: int
    """Iterations of the run."""
    checkpoint: int
    """Size of one checkpoint."""
    disk: int
    """Checkpoints that are kept, the one being written, `best/`."""
    download: int
    """Published weights that are fetched from the hub unless they are there."""
    warnings: tuple[str, ...]
    """What will not work, or is not known."""

    @property
    def device(self) -> int:
        """Peak on the device."""
        return self.resident + max(self.update_peak, self.cache_peak)

    @property
    def num_gpus(self) -> int:
        """Devices whose memory together is enough; this version uses one."""
        return max(1, math.ceil(self.device / (self.gpu_gib * GIB)))

    @property
    def fits_one_device(self) -> bool:
        """Whether one device is enough."""
        return self.num_gpus == 1


def make_plan(settings: Settings, *, gpu_gib: float = 80.0) -> RunPlan:
    """Estimates for a run; reads at most a model folder's `config.json`.

    Args:
        settings: Settings of the run.
        gpu_gib: Memory of one device, GiB.

    Raises:
        SettingsError: If a model is a folder whose `config.json` cannot be used.
    """
    rollout = settings.rollout
    num_rollouts = rollout.num_groups * rollout.group_size
    policies = tuple(
        plan_policy(policy_id, settings, gpu_bytes=int(gpu_gib * GIB), num_rollouts=num_rollouts)
        for policy_id in settings.policies
    )
    loaded = _loaded_once(policies)
    limits = turn_limits(settings.env.id, settings.env.kwargs)
    sampling = settings.algorithm.dynamic_sampling
    most_rollouts = num_rollouts * (1 + sampling.max_refills if sampling.enabled else 1)
    checkpoint = sum(policy.checkpoint for policy in policies)
    best = sum(policy.best for policy in policies) if settings.checkpoint.keep_best else 0
    plan = RunPlan(
        name=settings.name,
        gpu_gib=gpu_gib,
        policies=policies,
        resident=sum(policy.weights + policy.engine_reserved for policy in loaded)
        + sum(policy.moments + policy.reference + _adapter(policy, loaded) for policy in policies),
        update_peak=max(policy.update for policy in policies),
        cache_peak=sum(policy.cache for policy in loaded),
        num_rollouts=num_rollouts,
        max_calls=None if limits is None else most_rollouts * limits.total,
        max_tokens=None if limits is None else most_rollouts * _episode_tokens(limits, policies),
        iterations=settings.iterations,
        checkpoint=checkpoint,
        disk=(settings.checkpoint.keep_last + 1) * checkpoint + best,
        download=sum({policy.model: policy.download for policy in policies}.values()),
        warnings=tuple(_warnings(settings, policies, limits, gpu_gib)),
    )
    return plan if plan.fits_one_device else replace(plan, warnings=(_too_large(plan), *plan.warnings))


def _loaded_once(policies: Sequence[PolicyPlan]) -> list[PolicyPlan]:
    """The policies without those whose adapter sits on a copy of the base that another has loaded."""
    bases: set[str] = set()
    loaded = []
    for policy in policies:
        if policy.kind == "adapter" and policy.model in bases:
            continue
        if policy.kind == "adapter":
            bases.add(policy.model)
        loaded.append(policy)
    return loaded


def _adapter(policy: PolicyPlan, loaded: Sequence[PolicyPlan]) -> int:
    """The adapter of a policy whose base is another's."""
    return 0 if policy in loaded else policy.moments // 2


def _episode_tokens(limits: TurnLimits, policies: Sequence[PolicyPlan]) -> int:
    """Most tokens of an episode: the longest calls as often as they may come, up to the total."""
    calls = []
    for role, most in limits.by_role.items():
        by_role = [policy for policy in policies if any(_is_role(agent, role) for agent in policy.agents)]
        tokens = max((policy.max_prompt_tokens + policy.max_completion_tokens for policy in by_role), default=0)
        calls += [tokens] * most
    return sum(sorted(calls, reverse=True)[: limits.total])


def _is_role(agent: str, role: str) -> bool:
    """Whether a key of `agents` can mean an agent of the role."""
    return agent == role or agent.startswith(f"{role}_") or fnmatchcase(f"{role}_0", agent)


def _too_large(plan: RunPlan) -> str:
    return (
        f"{plan.device / GIB:.0f} GiB are needed and one device has {plan.gpu_gib:g}: this version keeps all learners "
        "and engines on one device; train adapters (`lora` with dtype: bfloat16), set learner.gradient_checkpointing, "
        "learner.autocast and engine.dtype, lower rollout.max_prompt_tokens, sampling.max_tokens, token_budget and "
        "gpu_memory_utilization, or use a larger one"
    )


def _warnings(
    settings: Settings, policies: Sequence[PolicyPlan], limits: TurnLimits | None, gpu_gib: float
) -> Iterator[str]:
    for policy in policies:
        path = f"policies.{policy.policy_id}"
        chosen = settings.policies[policy.policy_id]
        if policy.kind != "endpoint" and policy.parameters is None:
            yield (
                f"{path}.model={policy.model!r}: its shape is not known here, so it is left out of all sums; "
                "give a folder that holds its config.json"
            )
        if policy.kind == "all weights" and policy.dtype == "bfloat16" and chosen.lr < _SMALLEST_STEP:
            yield (
                f"{path}: bfloat16 weights do not move by steps of lr={chosen.lr:g}, most round to nothing; set dtype: "
                "float32, or train an adapter (`lora`), which is kept in float32"
            )
        if policy.engine_reserved and policy.engine_rows < 1.0:
            yield (
                f"{path}.engine: vLLM's share of a device of {gpu_gib:g} GiB does not hold the weights and one "
                "completion of full length; raise gpu_memory_utilization, or shorten prompts and completions"
            )
        if policy.microbatch_tokens > settings.token_budget:
            yield (
                f"{path}: a row may have {policy.microbatch_tokens} tokens, more than token_budget="
                f"{settings.token_budget}: it is computed alone, and memory has to be there for it"
            )
    if limits is None:
        yield (
            f"env.id={settings.env.id!r}: how often its agents speak is not known here; calls and tokens are left out"
        )
