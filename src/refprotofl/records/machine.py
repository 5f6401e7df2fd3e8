"""The machine and the versions that computed a run."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from refprotofl.core import numerics


def describe_machine() -> dict[str, str | int]:
    """Return the processor, the CPU kernels in force, and the versions."""
    found: dict[str, str | int] = {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        **numerics.describe(),
        "rounding": numerics.rounding(),
        "python": platform.python_version(),
    }
    commit = source_commit()
    known = {} if commit is None else {"commit": commit}
    return found | {name: version(name) for name in ("refprotofl", "torch", "numpy")} | known


@cache
def source_commit() -> str | None:
    """Return the commit of the source tree, with a + where files differ from it; None for an installed package.

    Cached, because the running code is what was imported, whatever is committed later.
    """
    here = Path(__file__)
    try:
        outputs = [
            subprocess.run(
                ["git", "--no-optional-locks", *command], cwd=here.parent, capture_output=True, check=True, text=True
            ).stdout.strip()
            for command in (
                ["ls-files", "--error-unmatch", "--", here.name],  # a package may be installed within another's tree
                ["rev-parse", "HEAD"],
                ["status", "--porcelain", "--", ".."],
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return outputs[1] + ("+" if outputs[2] else "")


def _processor() -> str:
    """Return the name of the processor's model, which Python itself does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
