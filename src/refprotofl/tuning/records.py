"""What a search found, for programs and for people: tune.json, and settings as TOML."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from refprotofl.basics.escapes import for_terminal
from refprotofl.basics.units import counted, percent
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment, differences
from refprotofl.experiment.presets import WHOLE, read_settings, read_toml
from refprotofl.records.files import make_folders, write_whole
from refprotofl.report.statistics import estimate
from refprotofl.tuning.search import Request, Tried, Tuned

_MARK = "# Chosen by refprotofl tune"  # how a file of settings begins


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
    """Of one method an experiment, of several a table each, which `reproduce --tuned` takes."""
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
        lines = []
        for one in found:
            lines += ["", f"[{as_toml(one.name)}]  # {percent(one.chosen.score)}"]
            lines += [f"{key} = {as_toml(value)}" for key, value in _flat(read_settings(one.chosen.trial.typed))]
    write_whole(path, ("\n".join([for_terminal(head), *lines]) + "\n").encode())


def _experiment_lines(request: Request, one: Tuned) -> list[str]:
    """What was chosen, and what else is not the default; the seeds of a search and its validation end with it."""
    experiment = request.cell(one.name, one.chosen.trial, request.seeds[0]).experiment
    plain = experiment.plain()
    told = {*differences(plain, Experiment(method=experiment.method).plain())} - {"seed", "validation"}
    told |= dict(one.chosen.trial.settings).keys()
    lines = [f"{key} = {as_toml(value)}" for key, value in _flat(plain) if key in told]
    return [f"method = {as_toml(experiment.method)}", *lines]


def read_tuned(path: Path) -> dict[str, list[str]]:
    """The settings of several methods by their names, each as `--set` takes it."""
    tables = read_toml(path)
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise InputError(f"{path} is no result of a search for several methods: {wrong[0]} is not a table.")
    return {name: [f"{key}={as_toml(value)}" for key, value in _flat(table)] for name, table in tables.items()}


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values."""
    for key, value in table.items():
        if isinstance(value, dict) and key not in WHOLE:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_toml(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML has it escaped, JSON need not
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(key)} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if not isinstance(value, bool | int | float):
        raise InputError(f"{value} is neither a number nor a text, true, false, a list or a table.")
    return str(value).lower()
