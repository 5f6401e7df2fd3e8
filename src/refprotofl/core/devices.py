"""Where a run computes: choosing a device, naming it, and making it compute the same thing every time.

Images, models, the training loop and forward passes are on the device; messages, states and all that the server makes
of them are on the CPU.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack

import torch

from refprotofl.core.errors import InputError

CPU = torch.device("cpu")
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


def available() -> list[str]:
    """The kinds of devices that torch finds here, the one that is taken by itself first."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [name for name, there in found.items() if there]


def choose(asked: str) -> torch.device:
    """The device that the key `device` names."""
    found = available()
    if asked != "auto" and asked not in found:
        raise InputError(
            f'device = "{asked}", but torch {torch.__version__} finds none here; there is {" and ".join(found)}: '
            'use one of these, or device = "auto".'
        )
    name = found[0] if asked == "auto" else asked
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


def places(device: torch.device) -> int:
    """How many processes it takes to use all devices of this kind: one for each core, or for each GPU."""
    if device.type == "cpu":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return torch.cuda.device_count() if device.type == "cuda" else 1


def dealt(device: torch.device, workers: int) -> list[torch.device]:
    """Each worker's own device: several GPUs are dealt out in turn."""
    if device.type != "cuda":
        return [device] * workers
    return [torch.device("cuda", worker % places(device)) for worker in range(workers)]


def describe(device: torch.device, workers: int) -> str:
    """The devices that so many workers compute on, for the record: such as "cuda:0 NVIDIA A100"."""
    used = dict.fromkeys(dealt(device, workers))
    return ", ".join(f"{one} {torch.cuda.get_device_name(one)}" if one.type == "cuda" else str(one) for one in used)


def make_repeatable(device: torch.device) -> Callable[[], None]:
    """Has this process compute on the device with the same bits every time; gives what undoes it.

    On a GPU the fastest kernels add up in whatever order threads finish, and multiply with ten bits of precision. Where
    torch has no other kernel, it warns.
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
        (torch.utils.deterministic, "fill_uninitialized_memory", False),  # it costs time, and nobody reads such memory
    ):
        undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)
