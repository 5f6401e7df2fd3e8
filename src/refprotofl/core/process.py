"""Settings of one process: compute threads, memory allocation, signals, and its end with its parent."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# glibc's numbers for mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MEGABYTE = 1 << 20


@contextmanager
def one_compute_thread() -> Iterator[None]:
    """Compute with one thread, so that sums are the same everywhere; the previous setting is restored."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Make the C library reuse freed memory instead of returning it to the system; return False if it cannot.

    Otherwise every batch's activations are returned and fetched again, page by page, which takes a third of the time
    of a forward pass.
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
    """Start processes that ignore Ctrl-C from their first moment: the parent decides what an interrupt means."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what a signal does
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def main_hidden() -> Iterator[None]:
    """Start processes that do not import the main script again: it may run a study without asking for its name."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def live_with_parent() -> None:
    """Make this child process ignore Ctrl-C, where that is not inherited, and exit when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
