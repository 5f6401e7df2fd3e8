"""Presets, and loading of experiments: defaults < preset < file < `--set`."""

import copy
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from refprotofl.core import InputError
from refprotofl.experiment import Experiment, with_kebab_keys
from refprotofl.experiment.keys import keys, known_of
from refprotofl.experiment.passed_arrays import data_reference

Nested = dict[str, Any]

PRESETS: dict[str, Nested] = {
    "quick": {
        "dataset": "digits",
        "rounds": 20,
        "min-size": 10,
        "public": {"per-class": 5},
        "model": {"name": "mlp"},
        "train": {"batch-size": 16, "local-epochs": 2},
    },
    "small": {
        "dataset": "fashion-mnist",
        "train-limit": 10_000,
        "rounds": 20,
        "model": {"name": "cnn"},
        "evaluate": {"every": 10},
    },
    "full": {"dataset": "fashion-mnist", "rounds": 50, "model": {"name": "cnn"}},
    "paper": {"dataset": "cifar10", "rounds": 50, "model": {"name": "resnet18"}},
}

WHOLE = {"name"}  # a table under this key is one value


def load_experiment(
    file: Path | None = None,
    preset: str | None = None,
    settings: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> Experiment:
    """Load the experiment that a command line names; neither file nor preset means `quick`.

    `values` are those of Python, nested like the keys; they override the file as settings do.
    """
    try:
        return _load(file, preset, settings, values or {})
    except RecursionError:
        raise InputError("The experiment is invalid: its tables or lists are nested too deeply.") from None


def _load(file: Path | None, preset: str | None, settings: Sequence[str], given: Mapping[str, Any]) -> Experiment:
    if file is None and preset is None:
        preset = "quick"
    values: dict[str, Any] = {}
    if preset is not None:
        if preset not in PRESETS:
            raise InputError(f"There is no preset {preset!r}; presets: {', '.join(PRESETS)}.")
        values = copy.deepcopy(PRESETS[preset])
    if file is not None:
        _merge(values, with_kebab_keys(read_toml(file)), _rivals())
    _merge(values, with_kebab_keys(_named(given)), _rivals())
    _merge(values, read_settings(settings), _rivals())
    public = values.get("public")
    if isinstance(public, dict) and {"coverage", "classes"} <= public.keys():
        raise InputError("[public] accepts coverage or classes, not both: remove one of them.")
    return Experiment.parse(values)


def _named(given: Mapping[str, Any]) -> Nested:
    """Return the values with a name in place of arrays, which are neither merged nor copied."""
    named = {**given, **({"dataset": data_reference(given["dataset"])} if "dataset" in given else {})}
    for table in ("public", "test"):
        if isinstance(named.get(table), dict) and "dataset" in named[table]:
            named[table] = {**named[table], "dataset": data_reference(named[table]["dataset"])}
    return named


def read_settings(settings: Sequence[str]) -> Nested:
    """Return the values of `--set`, nested and plain."""
    typed: Nested = {}
    for setting in settings:
        _merge(typed, with_kebab_keys(_read_setting(setting)))
    return typed


def asked_numerics(file: Path | None, settings: Sequence[str]) -> Literal["portable", "native"]:
    """Return the key `numerics` alone: it takes effect before the modules that check an experiment are imported."""
    values = {} if file is None else with_kebab_keys(read_toml(file))
    asked = (values | read_settings(settings)).get("numerics")
    return "native" if asked == "native" else "portable"


def set_keys(settings: Sequence[str]) -> set[str]:
    """Return the dotted keys that `--set` names; `train.lr=0.1` and `train={lr=0.1}` give the same."""
    return {key for key, _ in flat_items(read_settings(settings))}


def with_settings(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """Return an experiment with the values of `--set`; keys outside its plain form are not kept."""
    values: Nested = experiment.plain()
    _merge(values, read_settings(settings), _rivals())
    return Experiment.parse(values)


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read the experiment file {file}: {error}.") from None
    except ValueError as error:  # also of numbers with thousands of digits
        raise InputError(f"{file} is not valid TOML: {error}.") from None


def _read_setting(setting: str) -> dict[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {setting!r} is not of the form key=value, such as --set train.lr=0.05.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # also of numbers with thousands of digits
        value = text.strip()
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def _rivals() -> dict[str, str]:
    """Return dotted keys, each with the one that excludes it."""
    named = {name: known_of(field, "rival") for name, field in keys(Experiment).items()}
    return {name: f"{name.rpartition('.')[0]}.{rival}" for name, rival in named.items() if rival}


def _merge(
    values: dict[str, Any], over: dict[str, Any], rivals: dict[str, str] | None = None, prefix: str = ""
) -> None:
    """Merge tables and replace other values; of two keys that exclude each other the later layer's wins."""
    for key, value in over.items():
        rival = (rivals or {}).get(f"{prefix}{key}", "").rpartition(".")[2]
        if rival and rival not in over:
            values.pop(rival, None)
        if isinstance(value, dict) and isinstance(values.get(key), dict) and key not in WHOLE:
            _merge(values[key], value, rivals, f"{prefix}{key}.")
        else:
            values[key] = copy.deepcopy(value)


def flat_items(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys with their values; a table under a key of `WHOLE` is one value."""
    for key, value in table.items():
        if isinstance(value, dict) and key not in WHOLE:
            yield from flat_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_toml(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML has it escaped, JSON need not
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(key)} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if not isinstance(value, bool | int | float):
        raise InputError(f"{value} is neither a number nor a text, true, false, a list or a table.")
    return str(value).lower()
