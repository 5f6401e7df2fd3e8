"""Which CPU instructions torch may use: the same on every machine (`portable`), or the best it has (`native`).

ATen, oneDNN and MKL choose their kernels by instruction set, and kernels for wider registers add in another order, so
a machine with AVX-512 rounds differently from one with AVX2. Three environment variables limit the libraries to AVX2.
Each library reads its variable once, when it first computes. MKL chooses by the CPU's maker, too: machines with the
same `rounding` get the same digests. Importing this module does not import torch.
"""

import hashlib
import os
import platform
import sys
from functools import cache
from typing import Literal

from refprotofl.core.errors import InputError

Mode = Literal["portable", "native"]

# MKL's strict mode also makes its AVX2 and AVX-512 kernels agree; CPUs of other makers than Intel ignore it.
VARIABLES = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2,STRICT"}
EVERY_MAKER = {"MKL_CBWR": "COMPATIBLE"}  # slower, and the same on CPUs of every maker; for users to set
CAPABILITY = "AVX2"  # as torch reports it under these variables


def apply(mode: Mode) -> None:
    """Limit this process, and those it starts, to portable kernels if `mode` asks for it.

    Raises InputError if torch has already computed in this process with other kernels. `native` adds no limit and
    removes none. A CPU without AVX2 is left as it is: `resolve` and `caveat` say so.
    """
    problem = attempt(mode)
    if problem is not None:
        raise problem


def attempt(mode: Mode) -> InputError | None:
    """Do the same as `apply`, but return the error: a caller that computes nothing need not raise it."""
    if mode == "native" or not has_avx2():
        return None
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(_limits())
    if "torch" in sys.modules and not _took_effect(before):
        _restore(before)
        return InputError(
            'numerics = "portable" comes too late: torch has already computed in this process with other CPU kernels. '
            "Restart Python and either start the run before any other computation with torch, or set "
            f"{' '.join(f'{name}={value}' for name, value in VARIABLES.items())} in the environment first. "
            'numerics = "native" runs here and now, but its results can differ from those of other machines.'
        )
    return None


def resolve(mode: Mode) -> Mode:
    """Return the mode that a run asking for `mode` computes in here; portable kernels need a CPU with AVX2."""
    return "portable" if has_avx2() and (mode == "portable" or is_limited()) else "native"


def caveat(mode: Mode) -> str | None:
    """Return a warning for the user if this CPU cannot compute in `mode`."""
    if mode == resolve(mode) or mode == "native":
        return None
    return (
        f'numerics = "portable" needs an x86-64 CPU with AVX2. This one ({platform.machine()}) computes natively: '
        "results can differ from those of other machines in the last digits, and the run is recorded as native."
    )


def is_limited() -> bool:
    """Return True if the environment limits torch to portable kernels."""
    return all(_same(os.environ.get(name), value) for name, value in _limits().items())


def _limits() -> dict[str, str]:
    """Return the variables that limit the libraries; one that a user sets for every maker stays."""
    chosen = {name: value for name, value in EVERY_MAKER.items() if _same(os.environ.get(name), value)}
    return VARIABLES | chosen


def describe() -> dict[str, str]:
    """Return the mode in force and the CPU capability that torch uses, for the record of a run."""
    capability = _capability()
    portable = is_limited() and capability == CAPABILITY
    return {"numerics": "portable" if portable else "native", "cpu_capability": capability}


@cache
def rounding() -> str:
    """Return a short digest of how this process rounds: products, a convolution and a normalisation, with gradients.

    Processes with the same digest, torch release and experiment end in the same state.
    """
    import torch
    from torch.nn import functional

    def values(*shape: int) -> torch.Tensor:
        count = torch.Size(shape).numel()
        return ((torch.arange(count) * 7919 % 2003 - 1001) / 1024).view(shape).requires_grad_()

    digest = hashlib.sha256()
    for rows, inputs, outputs in ((64, 64, 256), (64, 256, 128), (20, 128, 10)):
        x, weight, bias = values(rows, inputs), values(outputs, inputs), values(outputs)
        hidden = functional.linear(x, weight, bias)
        found = [hidden, *torch.autograd.grad((hidden * hidden.detach()).sum(), (x, weight, bias))]
        digest.update(b"".join(one.detach().contiguous().numpy().tobytes() for one in found))
    x, weight = values(16, 8, 14, 14), values(32, 8, 3, 3)
    hidden = functional.group_norm(functional.conv2d(x, weight, stride=2, padding=1), 8)
    found = [hidden, *torch.autograd.grad((hidden * hidden.detach()).sum(), (x, weight))]
    digest.update(b"".join(one.detach().contiguous().numpy().tobytes() for one in found))
    return digest.hexdigest()[:12]


@cache
def has_avx2() -> bool:
    """Return True on x86-64 with AVX2. Elsewhere the variables must not be set: torch would crash or warn."""
    return platform.machine().lower() in ("x86_64", "amd64") and bool(_cpu_features().get("AVX2"))


def _took_effect(before: dict[str, str | None]) -> bool:
    """Return True if torch, loaded already, obeys the variables that were just set.

    torch reports what ATen does, not what oneDNN and MKL do. All variables are set in one step and the others never
    compute before ATen, so one report is enough. The exception: ATen's variable was there before and another was not.
    That makes a difference only where the CPU has more than AVX2.
    """
    aten, *others = (_same(before[name], value) for name, value in _limits().items())
    unsure = aten and not all(others) and bool(_cpu_features().get("AVX512F"))
    return _capability() == CAPABILITY and not unsure


def _same(found: str | None, value: str) -> bool:
    return found is not None and found.lower() == value.lower()


def _capability() -> str:
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def _cpu_features() -> dict[str, bool]:
    """Return the instruction sets by name, as NumPy found them: it asks the CPU itself on every platform."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]
    except ImportError:
        return {}
    return dict(__cpu_features__)


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
