"""Whose sample each is, where a user's own data tell: clients by number, with their names."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.data.dataset import Owners
from refprotofl.errors import DataError

CLIENT_NAMES = ("client", "client_test")  # arrays, one entry a training or test sample


def number_clients(
    given: Mapping[str, NDArray[Any]], train_size: int, test_size: int, origin: str
) -> tuple[tuple[str, ...], Owners | None, Owners | None]:
    """The clients' names, the owner of every training sample, and of every test sample if `client_test` is given.

    Clients are numbered in the order of their names, by value if all are whole numbers.
    """
    if "client" not in given:
        if "client_test" in given:
            raise DataError(f"{origin} has client_test but no client: give the clients of the training samples too.")
        return (), None, None
    train, places = _names(given["client"], "client", train_size, origin)
    names = _in_order(train)
    numbers = {name: number for number, name in enumerate(names)}
    owners, test_owners = np.array([numbers[name] for name in train], np.int64)[places], None
    if "client_test" in given:
        test, places = _names(given["client_test"], "client_test", test_size, origin)
        if unknown := sorted(set(test) - numbers.keys()):
            raise DataError(f"{origin}: the test client {unknown[0]!r} has no training samples.")
        test_owners = np.array([numbers[name] for name in test], np.int64)[places]
    return tuple(names), owners, test_owners


def _names(values: NDArray[Any], array: str, samples: int, origin: str) -> tuple[list[str], NDArray[np.int64]]:
    """The clients that occur, and which of them each sample (N,) is of."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "uiU":
        raise DataError(f"{origin}: {array} has type {values.dtype}; use names (astype(str)) or whole numbers.")
    if values.shape != (samples,):
        raise DataError(f"{origin}: {array} has shape {values.shape}; give one client a sample, shape ({samples},).")
    found, places = np.unique(values, return_inverse=True)
    names = [str(name) for name in found.tolist()]
    if not all(name.strip() for name in names):
        raise DataError(f"{origin}: {array} has an empty name in it.")
    return names, places


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
