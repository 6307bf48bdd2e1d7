"""Settings of an endpoint that plays a team-mate."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from trainers.setting_kinds import Count, Positive, Section

__all__ = ["EndpointSettings"]

_OURS = frozenset({"model", "messages", "stream", "n"})
_SAMPLING = frozenset({"max_tokens", "temperature", "top_p", "top_k", "seed"})


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
    retries: Annotated[int, Field(ge=0)] = 5
    """Times a request is sent again when the server is in trouble or limits the rate."""
    timeout_s: Positive = 120.0
    """Seconds for a turn, retries included."""
    extra_body: dict[str, Any] = {}
    """Further fields of each request, such as `{reasoning_effort: low}`; null takes a field out, such as `{seed: null}`
    where an endpoint refuses seeds."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("expected an address such as http://localhost:8000/v1")
        if parts.path.rstrip("/").endswith("/completions"):
            raise ValueError("expected the address up to /v1; '/chat/completions' is added to it")
        if parts.query or parts.fragment:
            raise ValueError("expected no query and no fragment; fields of the request go into 'extra_body'")
        if parts.username or parts.password:
            raise ValueError("expected no user and no password, they would be written down; use 'api_key_env'")
        return url

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, fields: dict[str, Any]) -> dict[str, Any]:
        for name, value in fields.items():
            if name in _OURS:
                raise ValueError(f"{name!r} is set by the trainer; remove it")
            if name in _SAMPLING and value is not None:
                raise ValueError(f"{name!r} is no field to add; set it under 'sampling', or to null to leave it out")
        return fields
