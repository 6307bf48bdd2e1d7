"""Settings of a run: typed, with unknown keys refused by name, read from recipes and `key=value` overrides."""

import difflib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from trainers.endpoint_settings import EndpointSettings
from trainers.overrides import SettingsError, apply_override, explain
from trainers.policy_settings import (
    EngineSettings,
    LearnerSettings,
    LoraSettings,
    PolicySettings,
    SamplingSettings,
    TinyModelSettings,
)
from trainers.prices import Price
from trainers.setting_kinds import Count, Positive, Section, Share

__all__ = [
    "AlgorithmSettings",
    "CheckpointSettings",
    "DynamicSamplingSettings",
    "EndpointSettings",
    "EngineSettings",
    "EnvSettings",
    "EvaluationSettings",
    "ImportanceSettings",
    "KlSettings",
    "LearnerSettings",
    "LoraSettings",
    "OverlongSettings",
    "PolicySettings",
    "PriceSettings",
    "RolloutSettings",
    "SamplingSettings",
    "Settings",
    "SettingsError",
    "SkillSettings",
    "TinyModelSettings",
    "WarmStartSettings",
    "load_settings",
    "parse_settings",
    "recipe_names",
]


class EnvSettings(Section):
    """Which environment, and with which arguments."""

    id: str
    """Registered id, such as `MathLoop-v0`."""
    kwargs: dict[str, Any] = {}
    """Arguments for `mas_envs.make`."""


class KlSettings(Section):
    """A penalty that keeps a policy near where it started (for an adapter: near its base)."""

    coef: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the penalty, per token; 0 needs no reference."""
    estimate: Literal["k1", "k2", "k3"] = "k3"
    """See `trainers.kl.kl_tokens`."""


class ImportanceSettings(Section):
    """Correction for the gap between the engine that sampled and the learner; see `trainers.importance`."""

    mode: Literal["off", "truncate", "mask"] = "off"
    """`truncate` cuts weights at `cap`, `mask` drops what lies above."""
    level: Literal["token", "sequence"] = "token"
    """Whether each token has a weight of its own, or each completion."""
    cap: Positive = 2.0
    """Largest weight."""


class DynamicSamplingSettings(Section):
    """Groups whose rollouts all earn the same are dropped and other tasks drawn instead.

    Source: DAPO, arXiv 2503.14476, section 3.2.
    """

    enabled: bool = False
    """Whether such groups are dropped."""
    max_refills: Count = 3
    """Times per iteration that dropped groups are drawn anew; then the iteration goes on with fewer groups."""


class OverlongSettings(Section):
    """A penalty that grows over the last tokens a completion may have; see `trainers.returns.overlong_penalty`."""

    buffer: Annotated[int, Field(ge=0)] = 0
    """Tokens over which it grows from 0 to 1; 0 is no penalty."""
    weight: Annotated[float, Field(ge=0.0)] = 1.0
    """Penalty of a completion that uses up all its tokens."""


class AlgorithmSettings(Section):
    """Advantages and loss."""

    estimator: str = "drmas"
    """A registered estimator: drmas, grpo, drmas_mean, drmas_std, grpo_rows, rloo, drmas_rloo, dr_grpo, ..."""
    eps: Positive = 1e-6
    """Added to standard deviations; in the unit of rewards."""
    ddof: Literal[0, 1] = 1
    """1 is the sample standard deviation of the published code, 0 the paper's formula."""
    lone: Literal["reward", "zero", "drop", "formula"] = "zero"
    """What a statistic over a single sample gives; `reward` is the published rule."""
    min_std: Annotated[float, Field(ge=0.0)] = 1e-4
    """Standard deviations below this count as zero: the guard against agents without variance; 0 is no guard."""
    on_zero_std: Literal["zero", "group"] = "zero"
    """What the guard gives: no advantage, or the group's standard deviation."""
    step_weight: float = 1.0
    """Weight of the step-level part of `gigpo`."""
    loss: str = "ppo"
    """A registered loss: ppo, gspo, cispo, reinforce, ..."""
    clip_low: Positive = 0.2
    """Ratios below 1 - `clip_low` are clipped."""
    clip_high: Positive = 0.2
    """Ratios above 1 + `clip_high` are clipped."""
    dual_clip: Positive | None = 3.0
    """Bound of the loss where an advantage is negative, times that advantage; null is no bound."""
    aggregation: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] = (
        "token-mean"
    )
    """How token losses become one number: over all tokens, by completion, or by completion and the most tokens."""
    num_updates: Count = 1
    """Optimizer steps per iteration: the batch is cut into this many minibatches."""
    discount: Share = 1.0
    """Weight of a reward one turn later of the same agent."""
    reward_terms: list[str] = []
    """Registered terms that are added to what the environment gives; see `trainers.reward_terms`."""
    reward_weights: dict[str, float | dict[str, float]] = {}
    """Weight of a reward term by name, `{invalid: 2.0}`, or for one role or agent, `{verifier: {verdict: 0.5}}`; 1
    where none is given."""
    kl: KlSettings = KlSettings()
    entropy_coef: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the entropy bonus, per token."""
    importance: ImportanceSettings = ImportanceSettings()
    dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
    overlong: OverlongSettings = OverlongSettings()
    max_bad_updates: Count = 3
    """Stop after this many updates in a row whose loss or gradient is not finite."""


class RolloutSettings(Section):
    """How episodes are collected."""

    num_groups: Count = 16
    """Tasks per iteration."""
    group_size: Count = 8
    """Rollouts that start from the same task."""
    max_prompt_tokens: Count | None = None
    """Longer prompts lose the middle of their longest message; None is the model's context less the completion."""
    call_deadline_s: Positive | None = 300.0
    """Seconds one completion may take before the rollout counts as truncated."""
    episode_deadline_s: Positive | None = 1800.0
    """Seconds one episode may take before it counts as truncated."""
    async_lag: Literal[0, 1] = 0
    """1 generates the next iteration's rollouts while the learner works, with weights one update old, which
    `importance.mode` must correct; 0 waits, and a run repeats bit for bit."""
    step_threads: Annotated[int, Field(ge=0)] = 0
    """Environment steps that may wait at the same time, for a grader or a retrieval server, while policies generate. 0
    takes them one after the other, and a run repeats bit for bit."""


class SkillSettings(Section):
    """How good the demonstrator is; see `mas_envs.Skill`."""

    accuracy: Share = 1.0
    """Share of turns whose content is right."""
    malformed: Share = 0.0
    """Share of turns whose format is broken."""


class WarmStartSettings(Section):
    """Behaviour cloning of the environment's scripted experts, before RL.

    First clean demonstrations, in states that a mediocre team reaches; then, if `spoiled` is given, demonstrations of
    a mediocre expert, until measured success falls below `spoil_until`: RL then brings back what the model knows.
    """

    num_episodes: Count = 4000
    """Episodes that are played to collect demonstrations."""
    steps: Count = 600
    """Optimizer steps on clean demonstrations."""
    batch_size: Count = 128
    """Demonstrations per step."""
    lr: Positive = 4e-3
    """Peak learning rate of those steps."""
    behaviour: dict[str, SkillSettings] = {}
    """Role -> skill of the team that reaches the states; a perfect expert where none is given."""
    spoiled: dict[str, SkillSettings] = {}
    """Role -> skill of the mediocre demonstrator; empty skips this phase."""
    spoil_until: Share = 0.35
    """Success in [0, 1] below which the mediocre phase ends."""
    spoil_lr: Positive = 6e-4
    """Learning rate of the mediocre phase."""
    max_spoil_steps: Count = 200
    """Most steps of the mediocre phase."""


class EvaluationSettings(Section):
    """Measuring on held-out tasks."""

    tasks: Any = None
    """Held-out tasks, as `tasks=` of the environment takes them; None measures on the training tasks."""
    num_tasks: Count = 256
    """Tasks of the set that are used, from its start."""
    every: Annotated[int, Field(ge=0)] = 10
    """Iterations between evaluations; 0 evaluates only before and after training."""
    n: Count = 1
    """Rollouts per task."""
    temperature: Annotated[float, Field(ge=0.0)] | None = None
    """None takes each policy's own."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of probability that the most likely tokens are cut to; None takes each policy's own."""


class CheckpointSettings(Section):
    """What is kept to go on from."""

    every: Annotated[int, Field(ge=0)] = 20
    """Iterations between checkpoints; 0 writes one at the end only."""
    keep_last: Count = 3
    """Newest checkpoints that are kept."""
    keep_best: bool = True
    """Also keep the policies as they were at the best evaluation, in `best/`."""


class PriceSettings(Section):
    """Prices of a million tokens."""

    prompt: Annotated[float, Field(ge=0.0)]
    """Tokens read."""
    completion: Annotated[float, Field(ge=0.0)]
    """Tokens written."""


class Settings(Section):
    """All settings of a run."""

    name: str = "run"
    """Name of the run; its directory is `runs/NAME-N`."""
    description: str = ""
    """What the recipe shows, in a sentence."""
    seed: int = 0
    """Seed of the run; on one CPU thread the same seed gives the same run."""
    iterations: Annotated[int, Field(ge=0)] = 100
    """Iterations of rollouts and updates; 0 only measures."""
    threads: Annotated[int, Field(ge=0)] = 0
    """Threads torch may use; 0 leaves it to torch."""
    env: EnvSettings
    """The environment."""
    policies: dict[str, PolicySettings]
    """Policy id -> its settings."""
    agents: dict[str, str]
    """Agent id, role, or pattern such as `solver_*` -> policy id, in falling order of weight."""
    tiny_model: TinyModelSettings = TinyModelSettings()
    warm_start: WarmStartSettings | None = None
    """Demonstrations of the environment's experts before RL; null starts from the models as they are."""
    algorithm: AlgorithmSettings = AlgorithmSettings()
    rollout: RolloutSettings = RolloutSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    transcripts_per_iteration: Annotated[int, Field(ge=0)] = 8
    """Rollouts of each iteration that are kept word for word."""
    prices: dict[str, Annotated[float, Field(ge=0.0)] | PriceSettings] = {}
    """Agent id, role or policy id -> price of a million tokens, for the cost in evaluations; any currency."""
    token_budget: Count = 16_384
    """Tokens of one microbatch, padding included."""

    def price_table(self) -> dict[str, Price]:
        """The prices, where a single number holds for both kinds of tokens."""
        return {
            name: Price(price, price) if isinstance(price, float | int) else Price(price.prompt, price.completion)
            for name, price in self.prices.items()
        }

    @model_validator(mode="after")
    def _check_assignment(self) -> "Settings":
        for agent, policy_id in self.agents.items():
            if policy_id not in self.policies:
                raise ValueError(
                    f"agents.{agent}={policy_id!r} is not a policy; expected one of {', '.join(self.policies)}"
                )
        if self.rollout.async_lag and self.algorithm.importance.mode == "off":
            raise ValueError(
                "rollout.async_lag=1 trains on tokens of older weights and needs a correction; set "
                "algorithm.importance.mode to truncate or mask"
            )
        for policy_id, policy in self.policies.items():
            if policy.frozen and policy.lora is not None:
                raise ValueError(
                    f"policies.{policy_id} is frozen and has 'lora': an adapter that is not trained does nothing; "
                    "remove one of the two"
                )
            if policy.lora is not None and policy_id in "lora_":
                raise ValueError(f"policies.{policy_id}: peft loses adapters of that name; choose another policy id")
        if unused := sorted(set(self.policies) - set(self.agents.values())):
            raise ValueError(f"policies.{unused[0]} is used by no agent; assign it under 'agents', or remove it")
        return self

    @model_validator(mode="after")
    def _check_warm_start(self) -> "Settings":
        first_of: dict[str, str] = {}
        for policy_id, policy in self.policies.items() if self.warm_start else ():
            first = first_of.setdefault(policy.model, policy_id)
            if self.policies[first].chat_template_kwargs != policy.chat_template_kwargs:
                raise ValueError(
                    f"policies.{policy_id}.chat_template_kwargs={policy.chat_template_kwargs!r} differs from what "
                    f"{first!r} has: a warm start clones each model once, with one template; make them equal, or give "
                    "each policy a folder of its own"
                )
        return self


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files("trainers") / "recipes"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_settings(recipe: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """The settings of a recipe with overrides applied.

    Args:
        recipe: A name from `recipe_names()` or a path to a YAML file.
        overrides: `path.to.setting=value`, the value in YAML; a setting's last name is enough where only one setting
            has it, as in `estimator=grpo`.

    Raises:
        SettingsError: If there is no such recipe, or a setting is unknown or has a bad value.
    """
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise SettingsError(f"recipe {str(recipe)!r}: no such file; check the path")
        text = path.read_text(encoding="utf-8")
    elif str(recipe) in recipe_names():
        text = (resources.files("trainers") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    else:
        known = recipe_names()
        near = difflib.get_close_matches(str(recipe), known, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise SettingsError(f"no recipe {str(recipe)!r}, and it is no .yaml file; {hint}")
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"recipe {str(recipe)!r} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise SettingsError(f"recipe {str(recipe)!r} holds {type(values).__name__}; expected settings by name")
    for override in overrides:
        apply_override(values, override, Settings)
    return parse_settings(values)


def parse_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, every fault named by its full path.

    Raises:
        SettingsError: If a setting is unknown (the nearest name is given) or has a bad value.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(explain(fault, Settings) for fault in error.errors())) from error
