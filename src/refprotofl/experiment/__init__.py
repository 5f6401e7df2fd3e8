"""The experiment: one frozen, validated configuration with its hash, from defaults, presets, files and settings.

Its names are imported when they are used: the configuration holds the tables of all methods, whose declarations are
made of `experiment.keys`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.experiment.configuration import Experiment, differences, with_kebab_keys

__all__ = ["Experiment", "differences", "with_kebab_keys"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from refprotofl.experiment import configuration

        return getattr(configuration, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
