"""Seeds for every part of a run, all derived from one."""

import hashlib

__all__ = ["derive_seed"]


def derive_seed(seed: int, *parts: str | int) -> int:
    """A seed in [0, 2**63) that depends on `seed` and the names of what it is for, the same in every process.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3) != derive_seed(0, "rollout", 4)
    True
    """
    key = "\x1f".join([str(seed), *map(str, parts)]).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1
