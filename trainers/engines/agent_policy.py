"""`EnginePolicy`: an engine as an `AgentPolicy`, for `mas_envs.play` and the adapters to other libraries."""

from collections.abc import Sequence
from typing import Any

from adapters.llm import ChatCodec
from mas_envs.errors import MasEnvsError
from mas_envs.spaces import Message
from trainers.engines.base import Completion, Engine, Request, Sampling
from trainers.seeds import derive_seed

__all__ = ["EngineFailureError", "EnginePolicy"]


class EngineFailureError(MasEnvsError, RuntimeError):
    """An engine gave no completion: it failed, was late, or answered somebody else."""


class EnginePolicy:
    """From messages to the text that an engine samples; one request at a time, and nobody else on the engine meanwhile.

    Its samples depend on `seed` and on how often it was asked before. A deep copy, such as that of an environment with
    this policy inside, is the policy itself: engines are not copied.

    Args:
        engine: What samples; see `Engine`.
        codec: Chat template and tokenizer of its model.
        sampling: How completions are drawn; None is `Sampling()`.
        seed: Seed of all completions.
        adapter: Name of the LoRA adapter to sample with; None is the base model.
        max_prompt_tokens: Longer prompts are cut in the middle; None is no limit.
        deadline_s: Seconds a completion may take; None waits for ever.
    """

    def __init__(
        self,
        engine: Engine,
        codec: ChatCodec,
        sampling: Sampling | None = None,
        *,
        seed: int = 0,
        adapter: str | None = None,
        max_prompt_tokens: int | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self.engine = engine
        self.codec = codec
        self.sampling = sampling or Sampling()
        self.seed = seed
        self.adapter = adapter
        self.max_prompt_tokens = max_prompt_tokens
        self.deadline_s = deadline_s
        self._num_asked = 0

    def __call__(self, messages: Sequence[Message], /) -> str:
        """The completion, without special tokens.

        Raises:
            EngineFailureError: If the engine fails, runs out of time, or gives back the completion of another request.
        """
        request = Request(
            request_id=f"agent-policy-{id(self)}-{self._num_asked}",
            prompt_ids=self.codec.encode(messages, max_tokens=self.max_prompt_tokens),
            sampling=self.sampling,
            seed=derive_seed(self.seed, "agent-policy", self._num_asked),
            adapter=self.adapter,
            deadline_s=self.deadline_s,
        )
        self._num_asked += 1
        self.engine.submit([request])
        completion = self._wait_for(request.request_id)
        if completion.finish_reason not in ("stop", "length"):
            raise EngineFailureError(
                f"the engine ended a completion with {completion.finish_reason!r} ({completion.error or 'no details'});"
                " expected 'stop' or 'length': look at the engine, or give it more time with deadline_s"
            )
        return self.codec.decode(completion.token_ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> "EnginePolicy":
        return self

    def _wait_for(self, request_id: str) -> Completion:
        while True:
            ended = self.engine.poll()
            others = [completion.request_id for completion in ended if completion.request_id != request_id]
            if others or not ended:
                raise EngineFailureError(
                    f"the engine gave back {others or 'nothing'} while {request_id!r} was waited for; expected that "
                    "alone: give the policy an engine of its own"
                )
            return ended[0]
