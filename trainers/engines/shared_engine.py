"""One engine for several policies: adapters on the same base are served by one process."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from trainers.engines.base import Completion, Engine, Request

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EnginePort", "SharedEngine"]


class SharedEngine:
    """Hands each policy a port of its own; completions come back at the port they were asked for.

    Args:
        engine: What generates.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._port_of: dict[str, EnginePort] = {}
        self._ports: set[EnginePort] = set()

    def port(self) -> "EnginePort":
        """A new port."""
        port = EnginePort(self)
        self._ports.add(port)
        return port

    def submit(self, port: "EnginePort", requests: Sequence[Request]) -> None:
        """Queue requests of a port."""
        self._engine.submit(requests)
        self._port_of |= {request.request_id: port for request in requests}

    def deliver(self) -> bool:
        """Give what has ended to its ports; False when nothing is in flight."""
        ended = self._engine.poll()
        for completion in ended:
            self._port_of.pop(completion.request_id).ended.append(completion)
        return bool(ended)

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests."""
        self._engine.cancel(request_ids)

    def sync(self, weights: "Mapping[str, Tensor]", version: int, adapter: str | None) -> None:
        """Take new weights."""
        self._engine.sync(weights, version, adapter)

    def leave(self, port: "EnginePort") -> None:
        """Close the engine with its last port."""
        self._ports.discard(port)
        if not self._ports:
            self._engine.close()


class EnginePort:
    """One policy's side of a `SharedEngine`; see `base.Engine` for the contract."""

    def __init__(self, shared: SharedEngine) -> None:
        self._shared = shared
        self._in_flight: set[str] = set()
        self.ended: list[Completion] = []
        """Completions that wait to be taken."""

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; all or, on an error, none of them."""
        batch = list(requests)
        self._shared.submit(self, batch)
        self._in_flight |= {request.request_id for request in batch}

    def poll(self) -> list[Completion]:
        """Completions of this port that ended since the last poll; waits until there is one."""
        while self._in_flight and not self.ended and self._shared.deliver():
            pass
        ended, self.ended = self.ended, []
        self._in_flight -= {completion.request_id for completion in ended}
        return ended

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests of this port."""
        self._shared.cancel([request_id for request_id in request_ids if request_id in self._in_flight])

    def sync(self, weights: "Mapping[str, Tensor]", version: int, adapter: str | None = None) -> None:
        """Take new weights."""
        self._shared.sync(weights, version, adapter)

    def close(self) -> None:
        """Leave the engine; the last one closes it. Safe to call twice."""
        self._shared.leave(self)
