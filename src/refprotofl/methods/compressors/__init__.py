"""Compressors of weight updates by name: each module of this folder is one, a user's own is `module:Class`.

The only place that makes a compressor from `compress.name`. Nothing here needs torch until a compressor is made.
"""

from typing import TYPE_CHECKING

from refprotofl.core.discovery import find_class, names_in

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.methods.base.compressor import Compressor

NONE = "none"
NAMES = names_in(__path__, first=NONE)


def built_in_compressor(experiment: "Experiment") -> "Compressor | None":
    """Return the compressor; None if it is a user's own, whose code is not imported."""
    return create_compressor(experiment) if experiment.compress.name in NAMES else None


def create_compressor(experiment: "Experiment") -> "Compressor":
    """Return the compressor that the table [compress] names."""
    table = experiment.compress
    kind = find_class(table.name, __name__, "refprotofl.methods.base.compressor:Compressor", "compress.name")
    made: Compressor = kind(table)
    return made
