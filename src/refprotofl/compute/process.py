"""How one of our processes computes: with one thread, and with memory that it keeps from batch to batch."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# glibc's numbers for mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MEGABYTE = 1 << 20


@contextmanager
def one_compute_thread() -> Iterator[None]:
    """Every engine computes with one thread, so that sums come out the same; the caller's setting returns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Has the C library reuse freed memory instead of returning it; False where that cannot be had.

    Else every batch's activations are given back to the system and fetched again, page by page, which takes a third of
    the time of a forward pass.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    large = mallopt(_MMAP_THRESHOLD, 256 * _MEGABYTE) or mallopt(_MMAP_THRESHOLD, 32 * _MEGABYTE)  # older ones: 32 MB
    return bool(large and mallopt(_TRIM_THRESHOLD, 512 * _MEGABYTE))
