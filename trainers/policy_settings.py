"""Settings of one policy: its model, how it is trained, how it samples and what generates its completions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainers.endpoint_settings import EndpointSettings
from trainers.setting_kinds import Count, Positive, Section, Share

__all__ = [
    "TINY",
    "EngineSettings",
    "LearnerSettings",
    "LoraSettings",
    "PolicySettings",
    "SamplingSettings",
    "TinyModelSettings",
]

TINY = "tiny"
"""The `model` of policies that start from a model made on the spot."""


class TinyModelSettings(Section):
    """Size of a model made on the spot, for policies whose `model` is `tiny`."""

    hidden_size: Count = 64
    """Width of the model."""
    intermediate_size: Count = 128
    """Width inside its feed-forward layers."""
    num_layers: Count = 2
    """Transformer layers."""
    num_heads: Count = 4
    """Attention heads; divides `hidden_size`."""
    vocab_size: Annotated[int, Field(ge=262)] = 512
    """Most entries of the tokenizer; fewer are used when the texts have no more repeats."""
    max_context: Count = 512
    """Most tokens of prompt and completion together."""
    init_std: Positive = 0.08
    """Standard deviation of the initial weights."""
    embedding_std: Positive = 0.2
    """Standard deviation of the initial embeddings."""


class SamplingSettings(Section):
    """How completions are drawn."""

    max_tokens: Count = 256
    """Most tokens of a completion."""
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of probability that the most likely tokens are cut to; 1 cuts none."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Most likely tokens that are left to choose from; 0 leaves all."""


class EngineSettings(Section):
    """What generates a policy's completions."""

    kind: Literal["transformers", "vllm"] = "transformers"
    """`transformers` computes in this process, with the weights that are trained; `vllm` in a process of its own."""
    max_rows: Count = 256
    """Most completions decoded at the same time."""
    python: str | None = None
    """Interpreter of the environment in which vLLM is installed; None is this one. For `vllm` only."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Number format that it samples in; None is the policy's `dtype`. For `vllm` only."""
    options: dict[str, Any] = {}
    """Further arguments of vLLM's `EngineArgs`, such as `{gpu_memory_utilization: 0.4}`. For `vllm` only."""

    @model_validator(mode="after")
    def _check_kind(self) -> "EngineSettings":
        if self.kind != "vllm" and (self.python is not None or self.options):
            raise ValueError("'python' and 'options' are for kind=vllm; set kind: vllm, or remove them")
        if self.kind != "vllm" and self.dtype is not None:
            raise ValueError(
                f"dtype={self.dtype!r} is for kind=vllm, kind=transformers samples with the learner's own weights; set "
                "kind: vllm, or remove it"
            )
        return self


class LoraSettings(Section):
    """A low-rank adapter; policies with the same `model` and an adapter share one copy of the base in memory."""

    rank: Count = 16
    """Rank of the adapter's matrices."""
    alpha: Positive = 32.0
    """Scale of the adapter's output, divided by the rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the adapter's inputs that are dropped in training."""
    targets: str | list[str] = "all-linear"
    """Names of the layers that get an adapter, or `all-linear`."""


class LearnerSettings(Section):
    """How a policy's gradients are computed; the mathematics stay the same."""

    autocast: Literal["off", "bfloat16"] = "off"
    """`bfloat16` multiplies in bfloat16 over float32 weights: faster where there are units for it, at 3 digits."""
    gradient_checkpointing: bool = False
    """Compute each layer a second time in the backward pass instead of keeping it: less memory, a third more time."""
    compile: bool = False
    """Compile the layers (`torch.compile`): a minute or more at the start; slower on a CPU. For engine kind `vllm`."""


class PolicySettings(Section):
    """One policy: weights, how they are trained and how they sample."""

    model: str = TINY
    """`tiny` (made on the spot from `tiny_model`), a folder, or a hub name."""
    tiny_model: TinyModelSettings | None = None
    """Size of this policy's model when `model` is `tiny`; null takes the run's `tiny_model`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the weights."""
    frozen: bool = False
    """A team-mate that acts and is not trained."""
    lora: LoraSettings | None = None
    """Train an adapter of this size instead of the weights; None trains the weights."""
    lr: Positive = 1e-6
    """Peak learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes from its peak to zero over the run, after the warm-up."""
    warmup_updates: Annotated[int, Field(ge=0)] = 0
    """Updates over which the learning rate rises from 0 to its peak."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """Decay of AdamW's two moments."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    """Weight decay of AdamW."""
    max_grad_norm: Positive | None = 1.0
    """Gradient norms above are scaled down to this; None never clips."""
    chat_template_kwargs: dict[str, Any] = {}
    """Passed to the model's chat template with every prompt, such as `{enable_thinking: false}` for Qwen3."""
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    learner: LearnerSettings = LearnerSettings()
    endpoint: EndpointSettings | None = None
    """A model elsewhere instead of weights here, which makes the policy frozen; `sampling` holds for it too."""

    @property
    def engine_dtype(self) -> Literal["float32", "bfloat16"]:
        """Number format that completions are sampled in."""
        return self.engine.dtype or self.dtype

    @model_validator(mode="before")
    @classmethod
    def _freeze_endpoint(cls, values: Any) -> Any:
        has_endpoint = isinstance(values, Mapping) and values.get("endpoint") is not None
        return {"frozen": True, **values} if has_endpoint else values

    @model_validator(mode="after")
    def _check_tiny(self) -> "PolicySettings":
        if self.tiny_model is not None and self.model != TINY:
            raise ValueError(f"tiny_model is for model=tiny, and the model is {self.model!r}; remove one of the two")
        return self

    @model_validator(mode="after")
    def _check_template_kwargs(self) -> "PolicySettings":
        if taken := [
            name for name in ("conversation", "add_generation_prompt", "tokenize") if name in self.chat_template_kwargs
        ]:
            raise ValueError(f"chat_template_kwargs.{taken[0]} is set by the trainer; remove it")
        return self

    @model_validator(mode="after")
    def _check_compile(self) -> "PolicySettings":
        if self.learner.compile and self.engine.kind != "vllm":
            raise ValueError(
                "learner.compile=true needs engine.kind=vllm: the transformers engine runs the same layers at lengths "
                "that change with every token, and would compile without end"
            )
        return self

    @model_validator(mode="after")
    def _check_endpoint(self) -> "PolicySettings":
        if self.endpoint is None:
            return self
        if not self.frozen:
            raise ValueError("a policy with an 'endpoint' cannot be trained; remove 'frozen: false'")
        apply = ("frozen", "sampling", "endpoint")
        plain = {name: field.get_default(call_default_factory=True) for name, field in type(self).model_fields.items()}
        if idle := [name for name in plain if name not in apply and getattr(self, name) != plain[name]]:
            raise ValueError(
                f"a policy with an 'endpoint' is neither loaded nor trained here; remove {', '.join(map(repr, idle))}"
            )
        return self
