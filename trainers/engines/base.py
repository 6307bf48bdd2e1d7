"""What every generation engine does: take token prompts, give back sampled tokens with their logprobs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Completion", "Engine", "FinishReason", "Request", "Sampling"]

FinishReason = Literal["stop", "length", "deadline", "cancelled", "failed"]


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn."""

    max_tokens: int = 256
    """Most tokens of one completion, the stop token included; > 0."""
    temperature: float = 1.0
    """0 is greedy; 1 samples the model's own distribution."""
    top_p: float = 1.0
    """Smallest set of tokens with this much probability is kept; in (0, 1]."""
    top_k: int = 0
    """This many most likely tokens are kept; 0 keeps all."""

    def changed(self, temperature: float | None, top_p: float | None) -> "Sampling":
        """The same with another temperature or top_p; None keeps what there is."""
        return replace(
            self,
            temperature=self.temperature if temperature is None else temperature,
            top_p=self.top_p if top_p is None else top_p,
        )


@dataclass(frozen=True)
class Request:
    """One completion that is wanted."""

    request_id: str
    """Unique among the requests in flight; comes back with the completion."""
    prompt_ids: tuple[int, ...]
    """Token ids of the prompt, at least one."""
    sampling: Sampling
    seed: int
    """Same seed, prompt and weights: same tokens, whatever else is in flight."""
    adapter: str | None = None
    """Name of the LoRA adapter to sample with; None is the base model."""
    deadline_s: float | None = None
    """Seconds from `submit` after which the completion is given back unfinished; None waits for ever."""


@dataclass(frozen=True)
class Completion:
    """What an engine sampled for one request."""

    request_id: str
    """The id of the request."""
    token_ids: tuple[int, ...]
    """Sampled token ids, the stop token included when there was one."""
    logprobs: tuple[float, ...]
    """Behaviour logprob of each sampled token, natural log, under the distribution it was drawn from."""
    finish_reason: FinishReason
    """`stop`: a stop token; `length`: max_tokens or the context is used up; the others name a failure."""
    policy_version: int
    """Version of the weights that sampled the last token."""
    seconds: float
    """Wall time from submit to the end."""
    error: str | None = None
    """What went wrong, for `failed`."""


class Engine(Protocol):
    """Generates completions; requests join and leave at any time, there is no batch to wait for."""

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; returns at once.

        Raises:
            ValueError: If a prompt is empty or longer than the context, or an id is already in flight.
        """
        ...

    def poll(self) -> list[Completion]:
        """Completions that ended since the last poll; waits until there is one, [] when nothing is in flight."""
        ...

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests; each comes back once, as `cancelled`, with the tokens it had. Unknown ids are ignored."""
        ...

    def sync(self, weights: "Mapping[str, Tensor]", version: int, adapter: str | None = None) -> None:
        """Take new weights (of the base, or of one adapter), in the parameter names of the transformers model."""
        ...

    def close(self) -> None:
        """Free everything; safe to call twice."""
        ...
