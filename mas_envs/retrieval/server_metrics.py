"""What the retrieval server counts, in the format that Prometheus reads."""

from mas_envs.retrieval.optional_packages import need

__all__ = ["ServerMetrics"]

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServerMetrics:
    """Counters of one server; nothing is global.

    Raises:
        MissingExtraError: Without prometheus-client.
    """

    def __init__(self) -> None:
        self._client = need("prometheus_client", "mas-envs serve")
        self._registry = self._client.CollectorRegistry()
        self._requests = self._client.Counter(
            "mas_envs_requests", "Requests by HTTP status.", ["status"], registry=self._registry
        )
        self._latency = self._client.Histogram(
            "mas_envs_request_seconds", "Time from a request to its answer.", buckets=_SECONDS, registry=self._registry
        )
        self._batches = self._client.Histogram(
            "mas_envs_batch_queries", "Queries searched together.", buckets=_SIZES, registry=self._registry
        )
        self._waiting = self._client.Gauge(
            "mas_envs_waiting_queries", "Queries that no search has begun yet.", registry=self._registry
        )
        self.media_type: str = self._client.CONTENT_TYPE_LATEST

    def request(self, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(str(status)).inc()
        self._latency.observe(seconds)

    def search(self, num_queries: int) -> None:
        """Count a call of the retriever."""
        self._batches.observe(num_queries)

    def waiting(self, num_queries: int) -> None:
        """Note how many queries wait for the retriever."""
        self._waiting.set(num_queries)

    def exposition(self) -> bytes:
        """All counters as text."""
        return bytes(self._client.generate_latest(self._registry))
