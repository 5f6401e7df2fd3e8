"""The command `tune`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import (
    DataDir,
    Device,
    File,
    Preset,
    Settings,
    Workers,
    app,
    limit_kernels,
    nothing_kept_yet,
    read_path,
    read_seeds,
    read_workers,
)
from refprotofl.cli.output import Column, emit, explain, notes, say, show, warn
from refprotofl.cli.study import Methods, Protocol, SearchAsJson, SearchSeeds, StudyFolder, planning, read_base
from refprotofl.core import counted, for_terminal, percent

if TYPE_CHECKING:
    from refprotofl.federation import Workers as Count
    from refprotofl.studies.tune.search import ConfigurationResult, Request, SearchResult


class Strategy(StrEnum):
    each = "each"
    grid = "grid"
    random = "random"
    halving = "halving"


Dimensions = Annotated[
    list[str],
    typer.Option(
        "--search",
        help="A key and its values: train.lr=0.003,0.01,0.03, or a range to draw from: train.lr=0.001..0.1:log. "
        "fedprox.mu=… applies to fedprox alone, as does fedprox@train.lr=…; repeatable.",
    ),
]
StrategyName = Annotated[
    Strategy,
    typer.Option(
        help="each: one key after another; grid: all combinations; random: --trials draws; halving: the same draws, of "
        "which the best third continues with three times the rounds."
    ),
]
Write = Annotated[
    Path | None,
    typer.Option(
        parser=read_path,
        metavar="FILE.toml",
        help="File for the choice: an experiment for one method, a table each for several.",
        show_default=False,
    ),
]


@app.command(
    epilog="Example: refprotofl tune --methods refprotofl,fedprox --search train.lr=0.003,0.01,0.03 "
    "--search refprotofl.align=0.1,1,10 --search fedprox.mu=0.001,0.01,0.1 --preset small --write tuned.toml"
)
def tune(
    methods: Methods,
    search: Dimensions,
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    strategy: StrategyName = Strategy.each,
    trials: Annotated[int, typer.Option(min=1, help="Draws for each method, with random and halving.")] = 9,
    seeds: SearchSeeds = "1000,1001",
    protocol: Protocol = "personal",
    out_dir: StudyFolder = Path("runs/tune"),
    write: Write = None,
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    as_json: SearchAsJson = False,
) -> None:
    """Search good settings for several methods, each with the same budget, on validation data.

    The test set is not used: each client holds out a tenth of its training samples (or what `validation` sets). An
    interrupted search is resumed by the same command.
    """
    with nothing_kept_yet():
        limit_kernels(file, settings)
        from refprotofl.studies import split_list
        from refprotofl.studies.tune.search import Request, check
        from refprotofl.studies.tune.settings import refuse_unwritable
        from refprotofl.studies.tune.space import read_dimension

        request = Request(
            base=read_base(file, preset, settings, device),
            methods=tuple(split_list(methods)),
            dimensions=tuple(map(read_dimension, search)),
            strategy=strategy,
            trials=trials,
            seeds=tuple(read_seeds(seeds)),
            protocol=protocol,
            out=out_dir,
        )
        count = read_workers(workers)
        if write is not None:
            refuse_unwritable(write)
        planned = check(request)
    each = f"{counted(planned, 'trial')} with {counted(len(request.seeds), 'seed')}"
    say(f"{each} for each of {counted(len(request.methods), 'method')}", notes)
    runs = planned * len(request.seeds) * len(request.methods)
    _report(request, _search(request, data, count, runs), write, as_json)


def _search(request: "Request", data: Path | None, workers: "Count", runs: int) -> "list[SearchResult]":
    from refprotofl.studies import CELLS, KeptResults
    from refprotofl.studies.tune.search import first_runs
    from refprotofl.studies.tune.search import tune as study

    found = []
    with planning(request.out, data, workers, kept=KeptResults(request.out / CELLS), runs=runs) as planner:
        planner.conduct(first_runs(request))
        for method in request.methods:
            found.append(one := planner.conduct(study(request, method)))
            say(f"{for_terminal(method)}: {_words(one.chosen)}, {percent(one.chosen.score)}", notes)
    return found


def _report(request: "Request", found: "list[SearchResult]", write: Path | None, as_json: bool) -> None:
    import json

    from refprotofl.studies.tune.settings import plain, write_search, write_settings

    record = write_search(request, found)
    if write is not None:
        write_settings(write, request, found)
    if as_json:
        emit(json.dumps(plain(request, found), indent=2) + "\n")
        return
    for one in found:
        _show(one, request.protocol)
    for one in found:
        for key in one.at_an_end:
            warn(
                f"{for_terminal(one.method)}: the best {key} is at an end of the values allowed; others may be better."
            )
    explain(f"Scored on validation data, not on the test set. The whole search is in {for_terminal(record)}")
    if write is not None:
        say(f"The choice is in {for_terminal(write)}")


def _show(one: "SearchResult", protocol: str) -> None:
    ranked = sorted(one.tried, key=lambda tried: (-tried.configuration.rounds, -tried.score, tried != one.chosen))
    rows = [
        (_words(tried), tried.configuration.rounds, "failed" if tried.failed else percent(tried.score), _seeds(tried))
        for tried in ranked
    ]
    columns = (
        Column("settings", wraps=30),
        Column("rounds", True),
        Column(protocol, True),
        Column("by seed", wraps=16),
    )
    show(columns, rows, for_terminal(one.method))


def _words(tried: "ConfigurationResult") -> str:
    return for_terminal(", ".join(tried.configuration.typed)) or "defaults"


def _seeds(tried: "ConfigurationResult") -> str:
    return for_terminal(tried.failed) or ", ".join(f"{100 * value:.2f}" for value in tried.values.values())
