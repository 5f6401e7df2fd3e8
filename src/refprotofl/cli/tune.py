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
    with_device,
)
from refprotofl.cli.grids import watched_search
from refprotofl.cli.output import Column, emit, explain, notes, say, show, warn
from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted, percent

if TYPE_CHECKING:
    from refprotofl.federation.session import Workers as Count
    from refprotofl.studies.tune.search import Request, Tried, Tuned


class Strategy(StrEnum):
    each = "each"
    grid = "grid"
    random = "random"
    halving = "halving"


@app.command(
    epilog="Example: refprotofl tune --methods refprotofl,fedprox:share=full --search train.lr=0.003,0.01,0.03 "
    "--search refprotofl.align=0.1,1,10 --search fedprox.mu=0.001,0.01,0.1 --preset small --write tuned.toml"
)
def tune(
    methods: Annotated[str, typer.Option(help="Methods with commas between, with switches as in compare.")],
    search: Annotated[
        list[str],
        typer.Option(
            help="A key and its values: train.lr=0.003,0.01,0.03, or a range to draw from: train.lr=0.001..0.1:log. "
            "fedprox.mu=… concerns fedprox alone, as does fedprox@train.lr=…; repeatable."
        ),
    ],
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    strategy: Annotated[
        Strategy,
        typer.Option(
            help="each: one key after another; grid: all combinations; random: --trials draws; halving: as many, of "
            "which the best third goes on with three times the rounds."
        ),
    ] = Strategy.each,
    trials: Annotated[int, typer.Option(min=1, help="Draws for each method, with random and halving.")] = 9,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between; report results with others.")] = "1000,1001",
    protocol: Annotated[str, typer.Option(help="The accuracy that decides.")] = "personal",
    out_dir: Annotated[
        Path,
        typer.Option("--out", parser=read_path, metavar="DIR", help="Where the runs lie; finished ones are reused."),
    ] = Path("runs/tune"),
    write: Annotated[
        Path | None,
        typer.Option(
            parser=read_path,
            metavar="FILE.toml",
            help="Where the choice is written: of one method an experiment, of several a table each.",
            show_default=False,
        ),
    ] = None,
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole search as JSON.")] = False,
) -> None:
    """Search good settings for several methods, each with the same budget, on data that clients hold out.

    The test set is not touched: each client holds out a tenth of its training samples (or what `validation` says). A
    search that was interrupted goes on where it was.
    """
    with nothing_kept_yet():
        limit_kernels(file, settings)
        from refprotofl.studies.cells import split_list
        from refprotofl.studies.tune.search import Request, check
        from refprotofl.studies.tune.space import read_dimension
        from refprotofl.studies.tune.trials import refuse_unwritable

        request = Request(
            file=file,
            preset=preset,
            settings=tuple(with_device(settings or [], device)),
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
        ahead = check(request)
    each = f"{counted(ahead, 'trial')} with {counted(len(request.seeds), 'seed')}"
    say(f"{each} for each of {counted(len(request.methods), 'method')}", notes)
    found = _search(request, data, count)
    _tell(request, found, write, as_json)


def _search(request: "Request", data: Path | None, workers: "Count") -> "list[Tuned]":
    from refprotofl.studies.tune.search import tune as search

    found = []
    with watched_search(request.out) as watch:
        for one in search(request, data, workers, watch):
            found.append(one)
            say(f"{for_terminal(one.name)}: {_words(one.chosen)}, {percent(one.chosen.score)}", notes)
    return found


def _tell(request: "Request", found: "list[Tuned]", write: Path | None, as_json: bool) -> None:
    import json

    from refprotofl.studies.tune.trials import plain, write_search, write_settings

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
            warn(f"{for_terminal(one.name)}: the best {key} is the last of those allowed; others may be better still.")
    explain(f"Scored on validation data, not on the test set. The whole search is in {for_terminal(record)}")
    if write is not None:
        say(f"The choice is in {for_terminal(write)}")


def _show(one: "Tuned", protocol: str) -> None:
    ranked = sorted(one.tried, key=lambda tried: (-tried.trial.rounds, -tried.score, tried != one.chosen))
    rows = [
        (_words(tried), tried.trial.rounds, "failed" if tried.failed else percent(tried.score), _seeds(tried))
        for tried in ranked
    ]
    columns = (
        Column("settings", wraps=30),
        Column("rounds", True),
        Column(protocol, True),
        Column("by seed", wraps=16),
    )
    show(columns, rows, for_terminal(one.name))


def _words(tried: "Tried") -> str:
    return for_terminal(", ".join(tried.trial.typed)) or "as it comes"


def _seeds(tried: "Tried") -> str:
    return for_terminal(tried.failed) or ", ".join(f"{100 * value:.2f}" for value in tried.values.values())
