"""Which CPU instructions torch may use: the same on every machine (`portable`), or the best it has (`native`).

ATen and oneDNN choose their kernels by instruction set, and kernels for wider registers add in another order, so a
machine with AVX-512 rounds differently from one with AVX2. Two environment variables limit both libraries to AVX2. Each
library reads its variable once, when it first computes. Importing this module does not import torch.
"""

import os
import platform
import sys
from functools import cache
from typing import Literal

from refprotofl.core.errors import InputError

Mode = Literal["portable", "native"]

VARIABLES = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
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
    os.environ.update(VARIABLES)
    if "torch" in sys.modules and not _took_effect(before):
        _restore(before)
        return InputError(
            'numerics = "portable" comes too late: torch has already computed in this process with other CPU kernels. '
            "Restart Python and either start the run before any other computation with torch, or set "
            f"{' and '.join(f'{name}={value}' for name, value in VARIABLES.items())} in the environment first. "
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
    return all(os.environ.get(name, "").lower() == value.lower() for name, value in VARIABLES.items())


def describe() -> dict[str, str]:
    """Return the mode in force and the CPU capability that torch uses, for the record of a run."""
    capability = _capability()
    portable = is_limited() and capability == CAPABILITY
    return {"numerics": "portable" if portable else "native", "cpu_capability": capability}


@cache
def has_avx2() -> bool:
    """Return True on x86-64 with AVX2. Elsewhere the variables must not be set: torch would crash or warn."""
    return platform.machine().lower() in ("x86_64", "amd64") and bool(_cpu_features().get("AVX2"))


def _took_effect(before: dict[str, str | None]) -> bool:
    """Return True if torch, loaded already, obeys the variables that were just set.

    torch reports what ATen does, not what oneDNN does. Both variables are set in one step and oneDNN never computes
    before ATen, so one report is enough. The exception: ATen's variable was there before and oneDNN's was not. That
    makes a difference only where the CPU has more than AVX2.
    """
    aten, onednn = (_same(before[name], value) for name, value in VARIABLES.items())
    unsure = aten and not onednn and bool(_cpu_features().get("AVX512F"))
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
