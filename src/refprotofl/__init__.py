"""Federated learning over thin links: run, compare and deploy methods, and count every byte.

    import refprotofl as rp

    result = rp.run(rp.Experiment.preset("quick", rounds=5), out="runs/a")
    result.accuracy["personal"], result.bytes["total"]

Experiments
    Experiment(method="refprotofl", dataset="digits", ...)      all keys of a TOML file, with underscores
    Experiment.preset("small", dataset=(x, y))                  a preset; arrays may be passed as the data set
    Experiment.load("experiment.toml", rounds=10)               a file, with other values

Functions
    run(experiment, out=...)                        run or resume an experiment          -> RunResult
    load(run_folder)                                read a finished run                  -> RunResult
    compare(methods, experiment, seeds=...)         methods on the same data and seeds   -> Comparison
    tune(methods, search, experiment)               settings, chosen on validation data  -> Tuning
    frontier(experiment, budget="10 MB")            the best method within a limit       -> FrontierResult
    reproduce(table, preset)                        the paper's tables and figures       -> Reproduction
    partition(experiment)                           samples by client and class          -> Partition
    report(run_folder, ..., out="report.html")      the report page                      -> its path

    `experiment` is an Experiment, a preset's name or a TOML file; the preset `quick` if there is none. Defaults are
    those of the commands of the same name.

Results
    .to_frame()         a data frame (needs pandas); .records, or .history of a run, without pandas
    .model(client)      a client's final model, a torch module
    .predict(x)         classes and probabilities for samples
    In a notebook a result is shown as a table.

Observing runs
    callback=ProgressCallback()                     progress on the terminal
    class Mine(Callback): ...                       your own; also a list of several
    logging.getLogger("refprotofl")                 notes, warnings and evaluations

Errors
    InputError, DataError, RunError and its GuardError; all are RefProtoFLError. `help(rp.run)` has examples.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.api.comparing import Comparison, compare
    from refprotofl.api.reporting import Partition, partition, report
    from refprotofl.api.reproducing import Reproduction, reproduce
    from refprotofl.api.results import RunResult, load
    from refprotofl.api.running import run
    from refprotofl.api.searching import FrontierResult, Tuning, frontier, tune
    from refprotofl.cli.progress import ProgressCallback
    from refprotofl.core import DataError, GuardError, InputError, RefProtoFLError, RunError
    from refprotofl.experiment import Experiment
    from refprotofl.federation import Callback

    __version__: str

    # For type checkers alone: with a list at run time, help(refprotofl) would be the help of every class in it.
    __all__ = [
        "Callback",
        "Comparison",
        "DataError",
        "Experiment",
        "FrontierResult",
        "GuardError",
        "InputError",
        "Partition",
        "ProgressCallback",
        "RefProtoFLError",
        "Reproduction",
        "RunError",
        "RunResult",
        "Tuning",
        "__version__",
        "compare",
        "frontier",
        "load",
        "partition",
        "report",
        "reproduce",
        "run",
        "tune",
    ]


_find, _listed = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    """Import public names on first use: `run` needs torch, which takes seconds to import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("refprotofl")
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*_listed(), "__version__"} - {*globals()})


class _Package(ModuleType):
    """The package; its attribute `report` stays the function, although there is a subpackage of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "report" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
