"""The settings of a submitted run as text: a preset or a file, settings as for --set, and where things are."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_data_path

from refprotofl.core import InputError
from refprotofl.data.loading import is_relative
from refprotofl.deploy.run import Settings
from refprotofl.experiment import Experiment, load_experiment
from refprotofl.federation import default_folder

KEYS = ("preset", "file", "set", "out", "data")  # of the run config; an empty text leaves a key as it is

Value = bool | int | float | str | bytes


def read_run_config(config: Mapping[str, Value]) -> Settings:
    given = {name: str(value) for name, value in config.items() if value != ""}
    if unknown := [name for name in given if name not in KEYS]:
        raise InputError(
            f"Unknown run config key `{unknown[0]}`. The keys are {', '.join(KEYS)}; the experiment's own go into "
            f'set, as in set="{unknown[0]}={given[unknown[0]]}".'
        )
    file, out, data = (_path(name, given.get(name)) for name in ("file", "out", "data"))
    experiment = load_experiment(file, given.get("preset"), read_settings(given.get("set", "")))
    _refuse_relative_sets(experiment)
    return Settings(experiment, out or user_data_path("refprotofl") / "runs" / default_folder(experiment).name, data)


def read_settings(text: str) -> list[str]:
    """Return the settings of a text such as "rounds=20 train.lr=0.05"; quotes work as in a shell."""
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise InputError(f"set = {text!r}: {problem}.") from None


def _path(name: str, text: str | None) -> Path | None:
    """Return an absolute path: a ServerApp does not run where the user is."""
    if text is None:
        return None
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise _relative(name, text)
    return path


def _refuse_relative_sets(experiment: Experiment) -> None:
    """One word as `dataset` is a misspelt name, for which the nearest is suggested later."""
    sets = {"public.dataset": experiment.public.dataset, "test.dataset": experiment.test.dataset}
    if len(Path(experiment.dataset).parts) > 1 or Path(experiment.dataset).suffix:
        sets["dataset"] = experiment.dataset
    for name, path in sets.items():
        if path and is_relative(path):
            raise _relative(name, path)


def _relative(name: str, path: str) -> InputError:
    return InputError(
        f"{name} = {path!r} is relative, but the server does not run in your folder: give the absolute path, such as "
        f"{Path.home() / path}."
    )
