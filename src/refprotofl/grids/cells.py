"""The runs of a grid before they are run: which experiment, under which name, where."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refprotofl.basics.escapes import for_file_name
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.grids.choices import key_of, read_name, read_switches
from refprotofl.methods.catalogue import find_method


@dataclass(frozen=True)
class Cell:
    """One method with one seed."""

    name: str  # what it is called: as it was asked for, switches included, or by a name of its own
    experiment: Experiment
    folder: Path  # where its run lies, or will
    reused: bool = False  # its run was finished before
    asked: str = ""  # the method with its switches, where the name does not say them


def plan(
    file: Path | None,
    preset: str | None,
    settings: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
) -> list[Cell]:
    """The grid's cells, seed by seed, so that an interrupted comparison is complete for its first seeds.

    A method may carry switches and a name of its own, as `choices` reads them: `whole = fedavg:share=full`.
    """
    if not methods or not seeds:
        raise InputError("A comparison needs at least one method and one seed.")
    names = [read_name(method)[0] for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or len(set(seeds)) < len(seeds):
        raise InputError(f"A method or seed is named twice: {', '.join(repeated) or list(seeds)}.")
    return [cell_of(file, preset, settings, method, seed, out) for seed in seeds for method in methods]


def cell_of(file: Path | None, preset: str | None, settings: Sequence[str], asked: str, seed: int, out: Path) -> Cell:
    """One of them; the method's own switches win over the settings."""
    name, named = read_name(asked)
    method, switches = read_switches(named)
    find_method(method)
    if any(key_of(switch) == "seed" for switch in switches):
        raise InputError(f"{name}: every row has all seeds, so none is among its switches; --seeds chooses them.")
    experiment = load_experiment(file, preset, [*settings, f'method="{method}"', f"seed={seed}", *switches])
    return Cell(name, experiment, cell_folder(out, experiment), asked="" if name == named else named)


def cell_folder(out: Path, experiment: Experiment) -> Path:
    """A folder that tells what is in it; an earlier version's is taken where it holds a finished run."""
    refuse_file(out)
    earlier = out / experiment.hash[:16]
    if (earlier / "summary.json").exists():
        return earlier
    return out / cell_name(experiment)


def refuse_file(folder: Path) -> None:
    """Where runs are to lie there is a folder or nothing yet, and nothing but folders above it."""
    there = next((path for path in (folder, *folder.parents) if os.path.exists(path)), folder)
    if os.path.isfile(there):
        raise InputError(f"{there} is a file, and runs are put into a folder: use another --out.")


def cell_name(experiment: Experiment) -> str:
    method, dataset = for_file_name(experiment.method), for_file_name(Path(experiment.dataset).stem)
    return f"{method}-{dataset}-seed{experiment.seed}-{experiment.hash[:8]}"
