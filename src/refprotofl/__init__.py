"""Federated learning over thin links.

from refprotofl import Experiment, ProgressWatcher, run
finished = run(Experiment(dataset="digits", rounds=5, min_size=10, model={"name": "mlp"}), watcher=ProgressWatcher())
print(finished.summary["accuracy"])
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.cli.progress import ProgressWatcher
    from refprotofl.core.errors import DataError, GuardError, InputError, RefProtoFLError, RunError
    from refprotofl.experiment import Experiment
    from refprotofl.federation.callbacks import Watcher
    from refprotofl.federation.session import Finished, run

    __version__: str

_HOMES = {
    "Experiment": "experiment",
    "Finished": "federation.session",
    "ProgressWatcher": "cli.progress",
    "Watcher": "federation.callbacks",
    "run": "federation.session",
    **dict.fromkeys(("DataError", "GuardError", "InputError", "RefProtoFLError", "RunError"), "core.errors"),
}

__all__ = [
    "DataError",
    "Experiment",
    "Finished",
    "GuardError",
    "InputError",
    "ProgressWatcher",
    "RefProtoFLError",
    "RunError",
    "Watcher",
    "__version__",
    "run",
]


def __getattr__(name: str) -> Any:
    """`run` brings torch, which takes seconds to import: only who asks for it waits."""
    if name == "__version__":
        from importlib.metadata import version

        return version("refprotofl")
    if name in _HOMES:
        return getattr(importlib.import_module(f"refprotofl.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
