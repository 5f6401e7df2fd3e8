"""The experiment: one frozen, validated configuration with its hash, from defaults, presets, files and settings.

Its names are imported when they are used: the configuration holds the tables of all methods, whose declarations are
made of `experiment.keys`.
"""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.experiment.configuration import Experiment, differences, with_kebab_keys
    from refprotofl.experiment.keys import Bytes, Count, Rate, Scalar, Share, Switch, Table, Text, Weight, key
    from refprotofl.experiment.presets import (
        PRESETS,
        as_toml,
        asked_numerics,
        load_experiment,
        read_settings,
        read_toml,
        set_keys,
        with_settings,
    )
    from refprotofl.experiment.sections import Attack, Compress, Input, Model, Privacy, Public, Stop, Train
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "PRESETS",
    "Attack",
    "Bytes",
    "Compress",
    "Count",
    "Experiment",
    "Input",
    "Model",
    "Privacy",
    "Public",
    "Rate",
    "Scalar",
    "Share",
    "Stop",
    "Switch",
    "Table",
    "Text",
    "Train",
    "Weight",
    "as_toml",
    "asked_numerics",
    "differences",
    "key",
    "load_experiment",
    "read_settings",
    "read_toml",
    "set_keys",
    "with_kebab_keys",
    "with_settings",
]
