"""Compute devices: choosing one, naming it, and making its results repeatable.

Images, models, the training loop and forward passes are on the device. Messages, states and everything that the server
computes are on the CPU.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack

import torch

from refprotofl.core.errors import InputError

CPU = torch.device("cpu")
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


def available() -> list[str]:
    """Return the kinds of devices that torch finds here, the one that `auto` selects first."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [name for name, there in found.items() if there]


def choose(asked: str) -> torch.device:
    """Return the device that the key `device` names."""
    found = available()
    if asked != "auto" and asked not in found:
        raise InputError(
            f'device = "{asked}": torch {torch.__version__} finds no such device here. Available: {", ".join(found)}. '
            'Use one of these, or device = "auto".'
        )
    name = found[0] if asked == "auto" else asked
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


def process_count(device: torch.device) -> int:
    """Return how many processes use all devices of this kind: one for each core, or for each GPU."""
    if device.type == "cpu":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return torch.cuda.device_count() if device.type == "cuda" else 1


def assign_devices(device: torch.device, workers: int) -> list[torch.device]:
    """Return the device of each worker: several GPUs are assigned in turn."""
    if device.type != "cuda":
        return [device] * workers
    return [torch.device("cuda", worker % process_count(device)) for worker in range(workers)]


def describe(device: torch.device, workers: int) -> str:
    """Return the names of the devices that these workers compute on, such as "cuda:0 NVIDIA A100"."""
    used = dict.fromkeys(assign_devices(device, workers))
    return ", ".join(f"{one} {torch.cuda.get_device_name(one)}" if one.type == "cuda" else str(one) for one in used)


def make_repeatable(device: torch.device) -> Callable[[], None]:
    """Make this process compute on the device with the same bits every time; return a function that undoes it.

    On a GPU the fastest kernels add in the order in which threads finish, and multiply with ten bits of precision.
    Where torch has no other kernel, it warns.
    """
    undo = ExitStack()
    if device.type == "cuda":
        undo.callback(torch.cuda.set_device, torch.cuda.current_device())
        torch.cuda.set_device(device)
        _fix_kernels(undo)
    return undo.close


def _fix_kernels(undo: ExitStack) -> None:
    if CUBLAS not in os.environ:
        os.environ[CUBLAS] = ":4096:8"  # read when cuBLAS is first used
        undo.callback(os.environ.pop, CUBLAS, None)
    undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision("highest")
    undo.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
    torch.set_deterministic_debug_mode("warn")
    for owner, name, value in (
        (torch.backends.cudnn, "deterministic", True),
        (torch.backends.cudnn, "benchmark", False),
        (torch.backends.cudnn, "allow_tf32", False),
        (torch.utils.deterministic, "fill_uninitialized_memory", False),  # it costs time, and such memory is never read
    ):
        undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)
