"""Ray on this machine, bounded, and gone afterwards."""

import contextlib
from collections.abc import Iterator

import adapters.rllib.ray_parts  # noqa: F401 - a missing or untested Ray is its error

__all__ = ["ray_session"]

_STORE_BYTES = 200 * 2**20


@contextlib.contextmanager
def ray_session(num_cpus: int = 1, *, store_bytes: int = _STORE_BYTES) -> Iterator[None]:
    """Start Ray for the length of a `with` block; its processes have ended when the block has.

    By default Ray takes a quarter of the memory and all cores. A Ray that runs already is used and left running.

    Args:
        num_cpus: Processes that Ray may run at the same time; one for RLlib, and one for each env runner.
        store_bytes: Size of the object store.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=store_bytes,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        yield
    finally:
        ray.shutdown()
