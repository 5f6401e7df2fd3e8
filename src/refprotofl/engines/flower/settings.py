"""Flower's run config as an experiment: dotted keys as for --set, and a few that only say where things are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from refprotofl.data.loading import is_relative
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment

PLACES = ("preset", "file", "out", "data")  # the app's own keys; every other is the experiment's

Value = bool | int | float | str | bytes


@dataclass(frozen=True)
class Settings:
    experiment: Experiment
    out: Path | None  # None for a new folder
    data: Path | None


def read_run_config(config: Mapping[str, Value]) -> Settings:
    """A key with an empty text is not set: Flower wants every key that may be given to be there before."""
    given = {name: value for name, value in config.items() if value != ""}
    places = {name: str(given.pop(name)) for name in PLACES if name in given}
    file, out, data = (_place(name, places) for name in ("file", "out", "data"))
    settings = [f"{name}={_as_setting(value)}" for name, value in given.items()]
    experiment = load_experiment(file, places.get("preset"), settings)
    _refuse_relative_sets(experiment)
    return Settings(experiment, out, data)


def _as_setting(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(name: str, places: Mapping[str, str]) -> Path | None:
    """A ServerApp runs where the SuperLink was started, which need not be where the user is."""
    if name not in places:
        return None
    path = Path(places[name]).expanduser()
    if not path.is_absolute():
        raise _relative(name, places[name])
    return path


def _refuse_relative_sets(experiment: Experiment) -> None:
    """One word as `dataset` is a name that was meant, and the nearest is told later."""
    sets = {"public.dataset": experiment.public.dataset, "test.dataset": experiment.test.dataset}
    if len(Path(experiment.dataset).parts) > 1 or Path(experiment.dataset).suffix:
        sets["dataset"] = experiment.dataset
    for name, path in sets.items():
        if path and is_relative(path):
            raise _relative(name, path)


def _relative(name: str, path: str) -> InputError:
    return InputError(
        f"{name} = {path!r} is relative, but the ServerApp does not run where you call flwr: give the whole path, "
        f"such as {name}='\"{Path.home() / path}\"'."
    )


def runs_folder() -> Path:
    """Where runs go that nobody gave a folder."""
    return user_data_path("refprotofl") / "runs"
