"""Running one experiment from Python, and the experiments that functions take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refprotofl.api.results import RunResult
from refprotofl.api.watching import Callbacks, watched_by
from refprotofl.api.words import python_words
from refprotofl.experiment import PRESETS, Experiment, as_toml, load_experiment
from refprotofl.experiment.presets import flat_items
from refprotofl.federation import Workers
from refprotofl.federation import run as run_experiment
from refprotofl.records import make_folders, write_whole
from refprotofl.studies import Base

Given = Experiment | Path | str | None


@python_words
def run(
    experiment: Given = None,
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    workers: Workers = "auto",
    resume: bool = False,
    from_round: int | None = None,
    callback: Callbacks = None,
    **more: Any,
) -> RunResult:
    """Run an experiment, or resume its run, and return the result.

    `experiment` is an `Experiment`, a preset's name or a TOML file; the preset `quick` if there is none. `out` is the
    run folder, by default a new one under runs/. The result does not depend on `workers`.

    >>> result = run(Experiment.preset("quick", rounds=2), out="runs/a")
    >>> result.accuracy["personal"]
    """
    asked = as_experiment(experiment)
    done = run_experiment(
        asked,
        out=out,
        data=data,
        workers=workers,
        resume=resume,
        from_round=from_round,
        callback=watched_by(callback),
        **more,
    )
    return RunResult(done.summary, done.folder, done.reused, trusted=True)


def as_experiment(given: Given) -> Experiment:
    """Return the experiment that a preset's name or a file stands for."""
    if isinstance(given, Experiment):
        return given
    file, preset = _named(given)
    return load_experiment(file, preset)


def as_base(given: Given, out: Path) -> Base:
    """Return what the trials of a study start from; an experiment made in Python is written to the study's folder."""
    if not isinstance(given, Experiment):
        return Base(*_named(given))
    asked = {name: value for name, value in given.asked().items() if name not in ("input", "method", "seed")}
    lines = [f"{key} = {as_toml(value)}" for key, value in flat_items(asked) if value is not None]
    make_folders(out)
    write_whole(out / "experiment.toml", ("\n".join(lines) + "\n").encode())
    return Base(out / "experiment.toml")


def _named(given: Path | str | None) -> tuple[Path | None, str | None]:
    if isinstance(given, str) and (given in PRESETS or not given.endswith(".toml")):
        return None, given
    return (None if given is None else Path(given).expanduser()), None


def folder_of(path: Path | str) -> Path:
    return Path(path).expanduser()


def listed(values: Sequence[int] | int) -> tuple[int, ...]:
    """Return seeds as a tuple; one may be given as it is."""
    return (values,) if isinstance(values, int) else tuple(values)
