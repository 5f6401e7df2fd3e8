"""The files of a search: all trials, one line of JSON each, and the chosen settings as TOML."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refprotofl.core import InputError, counted, for_terminal, percent
from refprotofl.experiment import Experiment, as_toml, differences, read_settings, read_toml
from refprotofl.experiment.presets import flat_items
from refprotofl.records import make_folders, write_whole
from refprotofl.report import estimate
from refprotofl.studies.tune.search import ConfigurationResult, Request, SearchResult

_MARK = "# Chosen by refprotofl tune"  # first words of a file of settings
_SEARCH = "search"  # its table about the search; the others are by method
_ENDS = "ends"  # by method: keys whose chosen value is the first or last of those that were allowed


def plain(request: Request, found: Sequence[SearchResult]) -> dict[str, Any]:
    """Return the whole search as plain values: its settings, all trials and their scores."""
    return {
        "schema": 1,
        "strategy": request.strategy,
        "protocol": request.protocol,
        "seeds": list(request.seeds),
        "rounds": request.experiment.rounds,
        "experiment": request.experiment.plain(),
        "methods": [
            {"name": one.method, "chosen": _plain(one.chosen), "trials": [_plain(tried) for tried in one.tried]}
            for one in found
        ],
    }


def _plain(tried: ConfigurationResult) -> dict[str, Any]:
    configuration = tried.configuration
    found = {"settings": dict(configuration.settings), "rounds": configuration.rounds, "values": tried.values}
    if tried.failed:
        return {**found, "failed": tried.failed}
    over = estimate(list(tried.values.values()))
    return {**found, "mean": over.mean, "half_width": over.half_width}


def trial_lines(request: Request, found: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """Return each trial as plain values, with its experiment for the first seed."""
    return [
        {
            **{"schema": 1, "method": one.method, **_plain(tried), "chosen": tried == one.chosen},
            **{"strategy": request.strategy, "protocol": request.protocol},
            "experiment": request.trial(one.method, tried.configuration, request.seeds[0]).experiment.plain(),
        }
        for one in found
        for tried in one.tried
    ]


def write_search(request: Request, found: Sequence[SearchResult]) -> Path:
    """Write all trials to `trials.jsonl`, in the order in which they were tried."""
    path = request.out / "trials.jsonl"
    make_folders(path.parent)
    lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in trial_lines(request, found)]
    write_whole(path, "".join(lines).encode())
    return path


def refuse_unwritable(path: Path) -> None:
    """InputError if the settings cannot be written to the path, or would replace a file that no search wrote."""
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(_MARK.encode())):
        raise InputError(f"--write {path}: it exists, and no search wrote it; name another file.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"--write {path}: {folder} is not writable.")


def write_settings(path: Path, request: Request, found: Sequence[SearchResult]) -> None:
    """Write the choice: an experiment for one method; for several a table each, for `reproduce --tuned`."""
    make_folders(path.parent)
    base = request.experiment
    head = (
        f"{_MARK} --strategy {request.strategy}: the best {request.protocol} on validation data of {base.dataset}, "
        f"{base.partition_title}, {counted(base.rounds, 'round')}, seeds {', '.join(map(str, request.seeds))}."
    )
    if len(found) == 1:
        lines = _experiment_lines(request, found[0])
    else:
        lines = ["", f"[{_SEARCH}]", *(f"{key} = {as_toml(value)}" for key, value in _searched(request).items())]
        ends = [f"{as_toml(one.method)} = {as_toml(list(one.at_an_end))}" for one in found if one.at_an_end]
        lines += ["", f"[{_SEARCH}.{_ENDS}]", *ends] if ends else []
        for one in found:
            lines += ["", f"[{as_toml(one.method)}]  # {percent(one.chosen.score)}"]
            lines += [
                f"{key} = {as_toml(value)}" for key, value in flat_items(read_settings(one.chosen.configuration.typed))
            ]
    write_whole(path, ("\n".join([for_terminal(head), *lines]) + "\n").encode())


def _searched(request: Request) -> dict[str, Any]:
    """Return the table [search]: the data, seeds and protocol."""
    base = request.experiment
    return {
        "dataset": base.dataset,
        "partition": base.partition,
        **dict([base.partition_degree] if base.partition_degree else []),
        "rounds": base.rounds,
        "seeds": list(request.seeds),
        "protocol": request.protocol,
    }


def _experiment_lines(request: Request, one: SearchResult) -> list[str]:
    """Return the chosen settings and what else differs from the defaults, except the search's seed and validation."""
    experiment = request.trial(one.method, one.chosen.configuration, request.seeds[0]).experiment
    plain = experiment.plain()
    written = {*differences(plain, Experiment(method=experiment.method).plain())} - {"seed", "validation"}
    written |= dict(one.chosen.configuration.settings).keys()
    lines = [f"{key} = {as_toml(value)}" for key, value in flat_items(plain) if key in written]
    return [f"method = {as_toml(experiment.method)}", *lines]


def read_tuned(path: Path) -> dict[str, list[str]]:
    """Read the settings of several methods: by name, each setting as `--set` takes it."""
    tables = {name: table for name, table in read_toml(path).items() if name != _SEARCH}
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise InputError(f"{path}: {wrong[0]} is not a table; a search of several methods writes one for each.")
    return {name: [f"{key}={as_toml(value)}" for key, value in flat_items(table)] for name, table in tables.items()}


@dataclass(frozen=True)
class Searched:
    """The data set and seeds that settings were chosen on. Results with the same seeds are too optimistic.

    `ends`: by method, the keys whose chosen value is at an end of its grid.
    """

    dataset: str
    seeds: tuple[int, ...]
    ends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_searched(path: Path) -> Searched | None:
    """Read the table [search] of a file of settings; None if it has none, as one written by hand."""
    table = read_toml(path).get(_SEARCH)
    if table is None:
        return None
    dataset, seeds = (table.get(key) for key in ("dataset", "seeds")) if isinstance(table, dict) else (None, None)
    if not isinstance(dataset, str) or not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        raise InputError(f'{path}: [{_SEARCH}] needs dataset = "…" and seeds = […], whole numbers; or leave it out.')
    return Searched(dataset, tuple(seeds), _read_ends(path, table.get(_ENDS, {})))


def _read_ends(path: Path, table: object) -> dict[str, tuple[str, ...]]:
    listed = isinstance(table, dict) and all(
        isinstance(keys, list) and all(isinstance(key, str) for key in keys) for keys in table.values()
    )
    if not isinstance(table, dict) or not listed:
        raise InputError(f"{path}: [{_SEARCH}.{_ENDS}] needs a list of keys for each method; or leave it out.")
    return {method: tuple(keys) for method, keys in table.items()}
