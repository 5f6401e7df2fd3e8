"""The experiment: one frozen, validated configuration with its hash, from defaults, presets, files and settings.

Its names are imported when they are used: the configuration holds the tables of all methods, whose declarations are
made of `experiment.keys`.
"""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.experiment.configuration import Experiment, differences, with_kebab_keys
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Experiment", "differences", "with_kebab_keys"]
