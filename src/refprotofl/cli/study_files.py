"""Study files: a command and its options as TOML, for commands that are too long to type.

`refprotofl reproduce studies/accuracy.toml --no-runs` is the command in the file, `reproduce` unless `command` names
another, with the keys of the file as its options, and with the options that follow.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic.fields import FieldInfo

from refprotofl.core import InputError
from refprotofl.experiment import as_toml, read_toml
from refprotofl.experiment.keys import no_such_key
from refprotofl.experiment.presets import flat_items

_USUAL = "reproduce"
_COMMANDS = (_USUAL, "compare", "tune", "frontier")
_EXPERIMENTS = {"compare": "experiments", "tune": "experiment"}  # the keys of their files
_TABLES = ("set", "tuned")
_PATHS = ("results", "out", "write")  # relative to the study file, as the files in [tuned] are
_ADDED = ("set", "results")  # given on the command line, too, both count, and of one key the later


def expand_study(file: Path, given: Sequence[str], commands: Mapping[str, click.Command]) -> list[str]:
    """Return the command in a study file with its options; `given` options override the file's."""
    study = read_toml(file)
    name = study.pop("command", _USUAL)
    if name not in _COMMANDS:
        raise InputError(f"{file}: command = {name!r} is not one of {', '.join(_COMMANDS)}.")
    parameters = {_key_of(one): one for one in commands[name].params if not isinstance(one, click.Argument)}
    positional = [str(study.pop("what"))] if name == _USUAL and "what" in study else []
    if name in _EXPERIMENTS:
        positional = [_path(file, one) for one in _listed(study.pop(_EXPERIMENTS[name], []))]
    _refuse_unknown(file, study, [*parameters, *(("what",) if name == _USUAL else ())])
    study.setdefault("out", os.path.relpath(Path("runs") / file.stem, file.parent))
    typed = {one.partition("=")[0].removeprefix("--") for one in given if one.startswith("--")}
    arguments = [name, *positional]
    for key, value in study.items():
        if key not in typed or key in _ADDED:
            arguments += _options(file, key, value, parameters[key].multiple)
    return [*arguments, *given]


def _key_of(option: click.Parameter) -> str:
    return option.opts[0].removeprefix("--")


def _refuse_unknown(file: Path, study: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in study.items():
        if key not in known:
            raise InputError(f"{file}: {no_such_key(key, dict.fromkeys(known, FieldInfo()))}.")
        if isinstance(value, dict) is not (key in _TABLES):
            raise InputError(f"{file}: {key} must {'' if key in _TABLES else 'not '}be a table.")


def _options(file: Path, key: str, value: Any, repeated: bool) -> list[str]:
    """Return a key as it is typed: `--key value`, as often as it takes, or with commas between."""
    if isinstance(value, bool):
        return [f"--{key}"] * value
    if key == "set":
        values = [f"{name}={_typed(one)}" for name, one in flat_items(value)]
    elif key == "tuned":
        values = [f"{name}={_path(file, one)}" for name, paths in value.items() for one in _listed(paths)]
    elif key in _PATHS:
        values = [_path(file, one) for one in _listed(value)]
    else:
        values = [str(one) for one in _listed(value)]
    if not repeated:
        values = [",".join(values)]
    return [part for one in values for part in (f"--{key}", one)]


def _typed(value: Any) -> str:
    """Return a value of `--set`: a text without its quotes where it cannot be taken for something else."""
    if isinstance(value, str):
        try:
            tomllib.loads(f"value = {value}")
        except ValueError:
            return value
    return as_toml(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _path(file: Path, value: Any) -> str:
    return os.path.normpath(file.parent / Path(str(value)).expanduser())
