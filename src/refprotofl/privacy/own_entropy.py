"""Noise that only its device knows: from a secret that never leaves it, in place of the experiment's seed."""

import hashlib
import hmac
import secrets

import numpy as np

SECRET = 32  # bytes


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET)


class OwnEntropy:
    """Random streams of a device for one run, as `Streams`.

    They depend on the request that is answered: the same request gets the same bytes again, another one other noise.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.request = ""  # the key of the request that is answered

    def __call__(self, purpose: str, round: int) -> np.random.Generator:
        words = f"{self.request}\n{purpose}\n{round}".encode()
        key = hmac.digest(self._secret, words, hashlib.sha256)
        return np.random.Generator(np.random.Philox(seed=np.random.SeedSequence(int.from_bytes(key))))
