"""How one of our processes computes: with one thread, with memory that it keeps, and as long as its parent lives."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
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


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """A process started here is deaf to Ctrl-C from its first moment: the parent decides what an interrupt means."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what a signal does
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def live_with_parent() -> None:
    """For a process that was started here: deaf to Ctrl-C where that is not inherited, and gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
