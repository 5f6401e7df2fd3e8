"""What a search found, for programs and for people: tune.json, and settings as TOML."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refprotofl.core.errors import InputError
from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted, percent
from refprotofl.experiment import Experiment, differences
from refprotofl.experiment.presets import as_toml, flat_items, read_settings, read_toml
from refprotofl.records.atomic_files import make_folders, write_whole
from refprotofl.report.statistics import estimate
from refprotofl.studies.tune.search import Request, Tried, Tuned

_MARK = "# Chosen by refprotofl tune"  # how a file of settings begins
_SEARCH = "search"  # its table of what was searched on; methods have the others


def plain(request: Request, found: Sequence[Tuned]) -> dict[str, Any]:
    """The whole search: what was tried, on what, with which scores."""
    return {
        "schema": 1,
        "strategy": request.strategy,
        "protocol": request.protocol,
        "seeds": list(request.seeds),
        "rounds": request.rounds,
        "experiment": request.base.plain(),  # with the first method and seed, and nothing that was searched
        "methods": [
            {"name": one.name, "chosen": _plain(one.chosen), "trials": [_plain(tried) for tried in one.tried]}
            for one in found
        ],
    }


def _plain(tried: Tried) -> dict[str, Any]:
    told = {"settings": dict(tried.trial.settings), "rounds": tried.trial.rounds, "values": tried.values}
    if tried.failed:
        return {**told, "failed": tried.failed}
    over = estimate(list(tried.values.values()))
    return {**told, "mean": over.mean, "half_width": over.half_width}


def write_search(request: Request, found: Sequence[Tuned]) -> Path:
    path = request.out / "tune.json"
    make_folders(path.parent)
    write_whole(path, (json.dumps(plain(request, found), indent=2) + "\n").encode())
    return path


def refuse_unwritable(path: Path) -> None:
    """Before hours of work: whether the settings can be written there, over nothing that somebody else wrote."""
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(_MARK.encode())):
        raise InputError(f"--write {path}: it is there already, and not written by a search; name another file.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"--write {path}: nothing can be written to {folder}.")


def write_settings(path: Path, request: Request, found: Sequence[Tuned]) -> None:
    """Of one method an experiment, of several a table each and one of the search, which `reproduce --tuned` takes."""
    make_folders(path.parent)
    base = request.base
    spread = f"{base.partition} {base.alpha:g}" if base.partition == "dirichlet" else base.partition
    head = (
        f"{_MARK} --strategy {request.strategy}: the best {request.protocol} on validation data of {base.dataset}, "
        f"{spread}, {counted(request.rounds, 'round')}, seeds {', '.join(map(str, request.seeds))}."
    )
    if len(found) == 1:
        lines = _experiment_lines(request, found[0])
    else:
        lines = ["", f"[{_SEARCH}]", *(f"{key} = {as_toml(value)}" for key, value in _searched(request).items())]
        for one in found:
            lines += ["", f"[{as_toml(one.name)}]  # {percent(one.chosen.score)}"]
            lines += [f"{key} = {as_toml(value)}" for key, value in flat_items(read_settings(one.chosen.trial.typed))]
    write_whole(path, ("\n".join([for_terminal(head), *lines]) + "\n").encode())


def _searched(request: Request) -> dict[str, Any]:
    """The same for programs: on what, by what."""
    base = request.base
    return {
        "dataset": base.dataset,
        "partition": base.partition,
        **({"alpha": base.alpha} if base.partition == "dirichlet" else {}),
        "rounds": request.rounds,
        "seeds": list(request.seeds),
        "protocol": request.protocol,
    }


def _experiment_lines(request: Request, one: Tuned) -> list[str]:
    """What was chosen, and what else is not the default; the seeds of a search and its validation end with it."""
    experiment = request.cell(one.name, one.chosen.trial, request.seeds[0]).experiment
    plain = experiment.plain()
    told = {*differences(plain, Experiment(method=experiment.method).plain())} - {"seed", "validation"}
    told |= dict(one.chosen.trial.settings).keys()
    lines = [f"{key} = {as_toml(value)}" for key, value in flat_items(plain) if key in told]
    return [f"method = {as_toml(experiment.method)}", *lines]


def read_tuned(path: Path) -> dict[str, list[str]]:
    """The settings of several methods by their names, each as `--set` takes it."""
    tables = {name: table for name, table in read_toml(path).items() if name != _SEARCH}
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise InputError(f"{path} is no result of a search for several methods: {wrong[0]} is not a table.")
    return {name: [f"{key}={as_toml(value)}" for key, value in flat_items(table)] for name, table in tables.items()}


@dataclass(frozen=True)
class Searched:
    """What settings were chosen on, which results had better not be of."""

    dataset: str
    seeds: tuple[int, ...]


def read_searched(path: Path) -> Searched | None:
    """As the file of several methods' settings has it; None in one of an older version, or by hand."""
    table = read_toml(path).get(_SEARCH)
    if table is None:
        return None
    dataset, seeds = (table.get(key) for key in ("dataset", "seeds")) if isinstance(table, dict) else (None, None)
    if not isinstance(dataset, str) or not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        raise InputError(f'{path}: [{_SEARCH}] needs dataset = "…" and seeds = […], whole numbers; or leave it out.')
    return Searched(dataset, tuple(seeds))
