"""Federated learning over thin links.

from refprotofl import Experiment, ProgressCallback, run
finished = run(Experiment(dataset="digits", rounds=5, min_size=10, model={"name": "mlp"}), callback=ProgressCallback())
print(finished.summary["accuracy"])
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.cli.progress import ProgressCallback
    from refprotofl.core import DataError, GuardError, InputError, RefProtoFLError, RunError
    from refprotofl.experiment import Experiment
    from refprotofl.federation import Callback, RunResult, run

    __version__: str

_HOMES = {
    "Experiment": "experiment",
    "RunResult": "federation.session",
    "ProgressCallback": "cli.progress",
    "Callback": "federation.callbacks",
    "run": "federation.session",
    **dict.fromkeys(("DataError", "GuardError", "InputError", "RefProtoFLError", "RunError"), "core.errors"),
}

__all__ = [
    "Callback",
    "DataError",
    "Experiment",
    "GuardError",
    "InputError",
    "ProgressCallback",
    "RefProtoFLError",
    "RunError",
    "RunResult",
    "__version__",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use: `run` needs torch, which takes seconds to import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("refprotofl")
    if name in _HOMES:
        return getattr(importlib.import_module(f"refprotofl.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
