"""Federated learning over thin links.

from refprotofl import Experiment, ProgressCallback, run
finished = run(Experiment(dataset="digits", rounds=5, min_size=10, model={"name": "mlp"}), callback=ProgressCallback())
print(finished.summary["accuracy"])
"""

from typing import TYPE_CHECKING, Any

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.cli.progress import ProgressCallback
    from refprotofl.core import DataError, GuardError, InputError, RefProtoFLError, RunError
    from refprotofl.experiment import Experiment
    from refprotofl.federation import Callback, RunResult, run

    __version__: str

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


_find, _ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    """Import public names on first use: `run` needs torch, which takes seconds to import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("refprotofl")
    return _find(name)


def __dir__() -> list[str]:
    return __all__
