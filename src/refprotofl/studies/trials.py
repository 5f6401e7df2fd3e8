"""Trials: the runs of a study before they are run. Each is one row with one seed, and has its folder."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refprotofl.core import InputError, for_file_name
from refprotofl.experiment import Experiment, load_experiment
from refprotofl.methods import depends_on_rounds, find_method
from refprotofl.studies.rows import Row, key_of, read_switches


@dataclass(frozen=True)
class Trial:
    """One row of a study with one seed."""

    name: str  # of the row
    experiment: Experiment
    folder: Path  # of its run
    asked: str = ""  # the method with its switches, if the name is another

    @property
    def hash(self) -> str:
        """Two trials with the same hash are the same run."""
        return self.experiment.hash


@dataclass(frozen=True)
class Base:
    """The experiment that all trials of a study start from."""

    file: Path | None = None
    preset: str | None = None
    settings: tuple[str, ...] = ()

    def over(self, *defaults: str) -> "Base":
        """Return the same base, with defaults that its own settings override."""
        return replace(self, settings=(*defaults, *self.settings))

    def under(self, *settings: str) -> "Base":
        """Return the same base with more settings, which override those before."""
        return replace(self, settings=(*self.settings, *settings))

    def experiment(self, row: Row, seed: int) -> Experiment:
        method, switches = read_switches(row.asked)
        find_method(method)
        if any(key_of(switch) == "seed" for switch in switches):
            raise InputError(f"{row.name}: remove the switch seed; every row runs with all seeds of --seeds.")
        settings = [*self.settings, *row.settings, f'method="{method}"', f"seed={seed}", *switches]
        return load_experiment(self.file, self.preset, settings)

    def trial(self, row: Row, seed: int, runs: Path) -> Trial:
        experiment = self.experiment(row, seed)
        refuse_file(runs)
        asked = "" if row.name == row.asked else row.asked
        return Trial(row.name, experiment, runs / folder_name(experiment), asked)


def seed_by_seed(base: Base, rows: Sequence[Row], seeds: Iterable[int], runs: Path) -> list[Trial]:
    """Return all trials in the order that makes an interrupted study complete for its first seeds."""
    return [base.trial(row, seed, runs) for seed in seeds for row in rows]


def unique(trials: Iterable[Trial]) -> list[Trial]:
    """Return the first trial of each experiment."""
    once: dict[str, Trial] = {}
    for trial in trials:
        once.setdefault(trial.hash, trial)
    return list(once.values())


def rung(trial: Trial, rounds: int) -> Trial:
    """Return a trial with fewer than `rounds` rounds in the folder of the whole run, where more rounds resume it.

    What plans with the number of rounds cannot be resumed with more: its trials keep a folder each.
    """
    if depends_on_rounds(trial.experiment):
        return trial
    whole = trial.experiment.model_copy(update={"rounds": rounds})
    return replace(trial, folder=trial.folder.with_name(folder_name(whole)))


def folder_name(experiment: Experiment) -> str:
    """Return a folder name that says what is in it."""
    method, dataset = for_file_name(experiment.method), for_file_name(Path(experiment.dataset).stem)
    return f"{method}-{dataset}-seed{experiment.seed}-{experiment.hash[:8]}"


def refuse_file(folder: Path) -> None:
    """InputError if the folder of the runs, or one above it, is a file."""
    existing = next((path for path in (folder, *folder.parents) if os.path.exists(path)), folder)
    if os.path.isfile(existing):
        raise InputError(f"--out: {existing} is a file; name a folder.")
