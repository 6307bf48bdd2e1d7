"""`RemotePolicy`: a team-mate behind an OpenAI-compatible endpoint; it acts, costs tokens, and is never trained."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainers.config import EndpointSettings, PolicySettings
from trainers.engines.base import Sampling
from trainers.engines.chat_answer import EndpointError
from trainers.engines.openai_engine import ChatCompletion, ChatRequest, OpenAIEngine
from trainers.overrides import SettingsError
from trainers.progress import Reporter
from trainers.rollout import TurnReply, TurnRequest

__all__ = ["RemotePolicy", "check_endpoints", "remote_policy"]


@dataclass(frozen=True)
class RemotePolicy:
    """Answers turns with what an endpoint says; its turns hold text and token counts, and no tokens to train on."""

    policy_id: str
    """Its name in the settings."""
    engine: OpenAIEngine
    """What asks the endpoint; copies that sample otherwise share it."""
    sampling: Sampling
    """How it samples."""

    @property
    def num_in_flight(self) -> int:
        """Requests that were submitted and not yet given back."""
        return self.engine.num_in_flight

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        """Send turns; returns at once."""
        self.engine.submit(
            ChatRequest(request.request_id, request.messages, self.sampling, request.seed) for request in requests
        )

    def poll(self) -> list[TurnReply]:
        """What was answered since the last poll; waits until there is something."""
        return [self._reply(done) for done in self.engine.poll()]

    def arrived(self) -> list[TurnReply]:
        """What was answered since the last poll, without waiting."""
        return [self._reply(done) for done in self.engine.arrived()]

    def resampled(self, temperature: float | None = None, top_p: float | None = None) -> "RemotePolicy":
        """The same policy, sampling at another temperature or top_p; None keeps what it has."""
        if temperature is None and top_p is None:
            return self
        return replace(self, sampling=self.sampling.changed(temperature, top_p))

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self.engine.close()

    def _reply(self, done: ChatCompletion) -> TurnReply:
        return TurnReply(
            request_id=done.request_id,
            text=done.text,
            prompt_ids=(),
            completion_ids=(),
            behaviour_logprobs=(),
            finish_reason="failed"
            if done.finish_reason == "deadline"
            else done.finish_reason,  # so that it is an alarm
            policy_version=0,
            seconds=done.seconds,
            error=None if done.error is None else f"policies.{self.policy_id}: {done.error}",
            num_prompt_tokens=done.num_prompt_tokens,
            num_completion_tokens=done.num_completion_tokens,
        )


def remote_policy(policy_id: str, settings: PolicySettings) -> RemotePolicy:
    """The policy behind an endpoint.

    Args:
        policy_id: Its name, for messages.
        settings: Its settings, with an `endpoint`.

    Raises:
        SettingsError: If the environment variable with the key is not set, or holds no key.
        MissingExtraError: Without httpx.
    """
    endpoint = settings.endpoint
    assert endpoint is not None
    try:
        engine = OpenAIEngine(
            endpoint.url,
            endpoint.model,
            api_key=_key(policy_id, endpoint),
            max_concurrency=endpoint.max_concurrency,
            retries=endpoint.retries,
            timeout_s=endpoint.timeout_s,
            extra_body=endpoint.extra_body,
        )
    except ValueError as error:
        raise SettingsError(f"policies.{policy_id}.endpoint: {error}") from error
    return RemotePolicy(policy_id, engine, Sampling(**settings.sampling.model_dump()))


def check_endpoints(policies: Mapping[str, PolicySettings], reporter: Reporter) -> None:
    """Ask every endpoint for a completion, so that one that cannot play is found before any model loads.

    Raises:
        SettingsError: If one is down, knows no such model, or refuses the key or the request.
    """
    remote = {policy_id: settings for policy_id, settings in policies.items() if settings.endpoint is not None}
    if not remote:
        return
    reporter.start("Asking the endpoints", len(remote))
    for policy_id, settings in remote.items():
        policy = remote_policy(policy_id, settings)
        try:
            policy.engine.check(policy.sampling)
        except EndpointError as error:
            raise SettingsError(f"policies.{policy_id}.endpoint: {error}") from error
        finally:
            policy.close()
        reporter.advance()
    reporter.finish()


def _key(policy_id: str, endpoint: EndpointSettings) -> str | None:
    if endpoint.api_key_env is None:
        return None
    where = f"policies.{policy_id}.endpoint.api_key_env"
    if not endpoint.api_key_env.isidentifier():
        raise SettingsError(
            f"{where} (not shown, it may be a key) names no environment variable; put the key into a variable, and the "
            "variable's name here"
        )
    if not (key := os.environ.get(endpoint.api_key_env, "").strip()):
        raise SettingsError(f"{where}={endpoint.api_key_env!r}: no such environment variable; set it to the key")
    return key
