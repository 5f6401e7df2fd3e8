"""Named random streams.

Every draw comes from a stream named by (seed, purpose, client, round), so that no draw depends on the draws before it,
on the number of workers or on the order in which clients finish.
"""

import hashlib

import numpy as np


def key(seed: int, purpose: str, *, client: int | None = None, round: int | None = None) -> int:
    """Return the stream's 128-bit key, for generators other than numpy's."""
    name = f"{seed}/{purpose}/{client}/{round}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:16], "little")


def stream(seed: int, purpose: str, *, client: int | None = None, round: int | None = None) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, client=client, round=round)))
