"""Settings of one policy: its model, how it is trained, how it samples and what generates its completions."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "Count",
    "EndpointSettings",
    "EngineSettings",
    "LoraSettings",
    "PolicySettings",
    "Positive",
    "SamplingSettings",
    "Section",
    "Share",
]

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Settings that belong together; keys it does not know are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SamplingSettings(Section):
    """How completions are drawn."""

    max_tokens: Count = 256
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0


class EngineSettings(Section):
    """What generates a policy's completions."""

    kind: Literal["transformers", "vllm"] = "transformers"
    """`transformers` computes in this process, with the weights that are trained; `vllm` in a process of its own."""
    max_rows: Count = 256
    """Most completions decoded at the same time."""
    python: str | None = None
    """Interpreter of the environment in which vLLM is installed; None is this one. For `vllm` only."""
    options: dict[str, Any] = {}
    """Further arguments of vLLM's `EngineArgs`, such as `{gpu_memory_utilization: 0.4}`. For `vllm` only."""

    @model_validator(mode="after")
    def _check_kind(self) -> "EngineSettings":
        if self.kind != "vllm" and (self.python is not None or self.options):
            raise ValueError("'python' and 'options' are for kind=vllm; set kind: vllm, or remove them")
        return self


class LoraSettings(Section):
    """A low-rank adapter; policies with the same `model` and an adapter share one copy of the base in memory."""

    rank: Count = 16
    alpha: Positive = 32.0
    """Scale of the adapter's output, divided by the rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    targets: str | list[str] = "all-linear"
    """Names of the layers that get an adapter, or `all-linear`."""


class EndpointSettings(Section):
    """An OpenAI-compatible endpoint that plays a team-mate: vLLM's server, OpenAI, llama.cpp's server ..."""

    url: str
    """Such as `http://localhost:8000/v1`; `/chat/completions` is added."""
    model: str
    """What the endpoint calls the model."""
    api_key_env: str | None = None
    """Environment variable that holds the key; the key itself is written nowhere."""
    max_concurrency: Count = 16
    """Requests at the same time."""
    retries: Annotated[int, Field(ge=0)] = 4
    """Times a request is sent again when the server is in trouble or limits the rate."""
    timeout_s: Positive = 120.0
    """Seconds for a turn, retries included."""


class PolicySettings(Section):
    """One policy: weights, how they are trained and how they sample."""

    model: str = "tiny"
    """`tiny` (made on the spot from `tiny_model`), a folder, or a hub name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    frozen: bool = False
    """A team-mate that acts and is not trained."""
    lora: LoraSettings | None = None
    """Train an adapter of this size instead of the weights; None trains the weights."""
    lr: Positive = 1e-6
    """Peak learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes from its peak to zero over the run, after the warm-up."""
    warmup_updates: Annotated[int, Field(ge=0)] = 0
    betas: tuple[Share, Share] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    max_grad_norm: Positive | None = 1.0
    """Gradient norms above are scaled down to this; None never clips."""
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    endpoint: EndpointSettings | None = None
    """A model elsewhere instead of weights here; it is frozen."""

    @model_validator(mode="after")
    def _check_endpoint(self) -> "PolicySettings":
        if self.endpoint is None:
            return self
        if self.lora is not None or self.model != "tiny" or self.engine != EngineSettings():
            raise ValueError("an endpoint has its own model and cannot be trained; remove 'model', 'lora' and 'engine'")
        if not self.frozen:
            raise ValueError("an endpoint cannot be trained; set frozen: true")
        return self
