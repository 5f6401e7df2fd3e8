"""Arrays in .npy and .npz files: read only if the size that their headers claim is there and fits into memory."""

import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, size

Array = NDArray[np.generic]

UNSUSPECTED = 64 << 20  # bytes that any file may unpack to
MOST_EXPANSION = 100  # images compress to a tenth or so; zeros to a thousandth
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")

BROKEN = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
NO_PICKLES = (
    "is an array of Python objects, which is not loaded because it could run code. "
    "Save the samples as one numeric array, series of different lengths cut or padded to one length, and labels as "
    "whole numbers or with astype(str)."
)


def read_npy(path: Path) -> Array:
    """Read the array of a .npy file."""
    with path.open("rb") as stream:
        stored = path.stat().st_size
        return _read(stream, stored, str(path), Budget(stored))


def read_npz(path: Path, choose: Callable[[list[str]], Iterable[str]]) -> dict[str, Array]:
    """Read the arrays of a .npz file that `choose` picks from all names."""
    budget = Budget(path.stat().st_size)
    with zipfile.ZipFile(path) as file:
        members = {name.removesuffix(".npy"): file.getinfo(name) for name in file.namelist() if name.endswith(".npy")}
        arrays = {}
        for name in choose(list(members)):
            with file.open(members[name]) as stream:
                arrays[name] = _read(stream, members[name].file_size, f"{path}: {name}", budget)
    return arrays


def npz_contents(path: Path) -> str:
    """Return what a .npz file holds, for an error: at most ten names."""
    with zipfile.ZipFile(path) as file:
        names = [name.removesuffix(".npy") for name in file.namelist()]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"It holds {', '.join(names[:10])}{more}." if names else "It is empty."


def is_npy(path: Path) -> bool:
    """Return True if a file holds a single array, whatever its name."""
    with path.open("rb") as stream:
        return stream.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX


class MissingArrays(DataError):
    """Arrays of a user that lack some that are needed."""


class Budget:
    """The bytes that may be read from one file: limited by the memory and by the file's own size."""

    def __init__(self, stored: int) -> None:
        """`stored` is the size of the file."""
        self._left = machine_memory()
        self._stored = stored
        self._spent = 0

    def spend(self, wanted: int, origin: str) -> None:
        """Raise DataError if an array is too large, before memory is allocated for it."""
        if self._left is not None and wanted > self._left:
            raise DataError(
                f"{origin} takes {size(wanted)}, more than the memory of this machine. Use fewer or smaller images."
            )
        self._spent += wanted
        if self._spent > max(UNSUSPECTED, MOST_EXPANSION * self._stored):
            raise DataError(
                f"{origin} would unpack the file's {size(self._stored)} to {size(self._spent)}, more than "
                f"{MOST_EXPANSION} times its size, as a decompression bomb does. If these are your own data, save "
                "them without compression, with numpy.savez."
            )
        self._left = None if self._left is None else self._left - wanted


def machine_memory() -> int | None:
    """Return the bytes of memory that this process can have at most; None where the system does not report them."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return min(physical, _container_memory() or physical)


def _container_memory() -> int | None:
    """Return the memory limit of the container that this process is in, if there is one."""
    try:
        return int(CONTAINER_LIMIT.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _read(stream: IO[bytes], length: int, origin: str, budget: Budget) -> Array:
    """Read the array in a stream of `length` bytes; a header that claims more bytes is refused."""
    shape, dtype = _header(stream)
    if dtype.hasobject:
        raise DataError(f"{origin} {NO_PICKLES}")
    # In Python's integers, which never wrap round as numpy's do.
    claimed, there = math.prod(shape) * dtype.itemsize, length - stream.tell()
    if claimed > there:
        raise DataError(f"{origin} is truncated or corrupt: its header claims {claimed:,} bytes, {there:,} are there.")
    budget.spend(claimed, origin)
    stream.seek(0)
    try:
        # Never pickles: a data file must not be able to run code.
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except MemoryError:
        raise DataError(f"{origin} takes {size(claimed)}, more than this machine has free.") from None


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], "np.dtype[np.generic]"]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of the format is not for plain arrays")
    shape, _, dtype = readers[version](stream)
    if any(length < 0 for length in shape):
        raise ValueError(f"the shape {shape} has a negative length")
    return shape, dtype


def regular_array(value: Any, name: str, origin: str) -> np.ndarray:
    """Return a user's value as an array of numbers or texts; raise DataError for a ragged one."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise DataError(f"{origin}: {name} is not a regular array: {error}.") from None
    if array.dtype.kind == "O":
        raise DataError(
            f"{origin}: {name} holds Python objects. Use one numeric array of samples of one size, "
            "and for labels whole numbers or astype(str)."
        )
    return array
