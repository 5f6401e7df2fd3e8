"""The machine and the versions that a run's numbers come from."""

import os
import platform
from importlib.metadata import version


def machine_card() -> dict[str, str | int]:
    card: dict[str, str | int] = {
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
    }
    return card | {name: version(name) for name in ("refprotofl", "torch", "numpy")}
