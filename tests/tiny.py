"""The tiny experiment that tests share: digits, 150 training images, an MLP. A run of it takes about a second."""

from collections.abc import Mapping
from typing import Any

from refprotofl import Experiment

TINY: dict[str, Any] = {
    "dataset": "digits",
    "train-limit": 150,
    "clients": 4,
    "rounds": 2,
    "min-size": 10,
    "public": {"per-class": 2},
    "train": {"batch-size": 16},
    "model": {"name": "mlp", "norm": "none", "embedding": 8},
    "evaluate": {"every": 2, "test-limit": 20},
}


def tiny_keys(**changes: Any) -> dict[str, Any]:
    """Return the keys of the tiny experiment; `min_size=5` sets `min-size`, tables are replaced as a whole."""
    return TINY | {key.replace("_", "-"): value for key, value in changes.items()}


def tiny_experiment(**changes: Any) -> Experiment:
    return Experiment.parse(tiny_keys(**changes))


def tiny_settings(**changes: Any) -> tuple[str, ...]:
    """Return all keys but the data set, which presets set, as `key=value`; those of a table are dotted."""
    settings: list[str] = []
    for key, value in tiny_keys(**changes).items():
        if key == "dataset":
            continue
        table = value if isinstance(value, Mapping) else None
        settings += [f"{key}={value}"] if table is None else [f"{key}.{name}={one}" for name, one in table.items()]
    return tuple(settings)


def tiny_options(**changes: Any) -> list[str]:
    """Return the keys as `--set key=value` options of a command."""
    return [word for setting in tiny_settings(**changes) for word in ("--set", setting)]
