"""What a search found, for programs and for people: tune.json, and settings as TOML."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refprotofl.basics.units import counted, percent
from refprotofl.errors import InputError
from refprotofl.experiment.presets import read_settings, read_toml
from refprotofl.grids.choices import read_switches
from refprotofl.records.files import make_folders, write_whole
from refprotofl.report.statistics import estimate
from refprotofl.tuning.search import Request, Tried, Tuned


def plain(request: Request, found: Sequence[Tuned]) -> dict[str, Any]:
    """The whole search: what was tried, on what, with which scores."""
    return {
        "schema": 1,
        "strategy": request.strategy,
        "protocol": request.protocol,
        "seeds": list(request.seeds),
        "rounds": request.rounds,
        "experiment": request.cell(request.methods[0], found[0].chosen.trial, request.seeds[0]).experiment.plain(),
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


def write_settings(path: Path, request: Request, found: Sequence[Tuned]) -> None:
    """Of one method an experiment, of several a table each, which `reproduce --tuned` takes."""
    base = request.base
    head = (
        f"# Chosen by refprotofl tune --strategy {request.strategy}: the best {request.protocol} on validation data of "
        f"{base.dataset}, {base.partition} {base.alpha:g}, {counted(request.rounds, 'round')}, "
        f"seeds {', '.join(map(str, request.seeds))}."
    )
    if len(found) == 1:
        method, switches = read_switches(found[0].name)
        lines = [f'method = "{method}"', *_lines([*switches, *found[0].chosen.trial.typed])]
    else:
        lines = []
        for one in found:
            lines += ["", f"[{json.dumps(one.name)}]  # {percent(one.chosen.score)}", *_lines(one.chosen.trial.typed)]
    write_whole(path, ("\n".join([head, *lines]) + "\n").encode())


def _lines(settings: Sequence[str]) -> list[str]:
    """Dotted keys with values as TOML has them."""
    found = []
    for setting in settings:
        key = setting.partition("=")[0].strip()
        value: Any = read_settings([setting])
        for part in key.split("."):
            value = value[part]
        found.append(f"{key} = {json.dumps(value)}")
    return found


def read_tuned(path: Path) -> dict[str, list[str]]:
    """The settings of several methods by their names, each as `--set` takes it."""
    tables = read_toml(path)
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise InputError(f"{path} is no result of a search for several methods: {wrong[0]} is not a table.")
    return {name: _flat(table) for name, table in tables.items()}


def _flat(table: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}={json.dumps(value)}"]
    return found
