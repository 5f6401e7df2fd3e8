"""The command `frontier`."""

import json
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
    read_seeds,
    read_workers,
)
from refprotofl.cli.output import emit, notes, say, warn
from refprotofl.cli.study import Protocol, SearchAsJson, SearchSeeds, StudyFolder, planning, read_base, show_table
from refprotofl.core import for_terminal

if TYPE_CHECKING:
    from refprotofl.report import Blocks
    from refprotofl.studies.frontier.candidates import Request
    from refprotofl.studies.frontier.front import Frontier

Budget = Annotated[
    str | None,
    typer.Option(help="Limit of all clients' bytes, uplink, downlink and one-time: '10 MB'.", show_default=False),
]
RoundBudget = Annotated[
    str | None,
    typer.Option(help="Limit of one client's bytes in any round, both directions: '50 kB'.", show_default=False),
]
Link = Annotated[
    str | None,
    typer.Option(help="With --deadline: lte, lora, nb-iot, wifi or up=…,down=…,latency=….", show_default=False),
]
Deadline = Annotated[
    float | None,
    typer.Option(min=0.001, help="Limit of one client's seconds on its link, in all rounds.", show_default=False),
]
Candidates = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated methods, with switches as in compare; the value fit becomes the bytes that fit.",
        show_default="a choice of methods and compressors",
    ),
]
Schedules = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated rounds x local epochs: 20x1,6x3.", show_default="the experiment's, and 3/10 x 3"
    ),
]


@app.command(
    epilog="Example: refprotofl frontier --preset small --set dataset=fashion-mnist --budget '10 MB', or --link lora "
    "--deadline 3600 --methods thin,fedavg:compress.name=stc --schedules 20x1,6x3"
)
def frontier(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    budget: Budget = None,
    round_budget: RoundBudget = None,
    link: Link = None,
    deadline: Deadline = None,
    methods: Candidates = None,
    schedules: Schedules = None,
    ends: Annotated[int, typer.Option(min=1, help="Least number of candidates that run all their rounds.")] = 6,
    seeds: SearchSeeds = "1000",
    protocol: Protocol = "personal",
    out_dir: StudyFolder = Path("runs/frontier"),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    as_json: SearchAsJson = False,
) -> None:
    """Search the best method and setting for your data within a limit of traffic, and print how to run it.

    Candidates are methods with compressors, each with several schedules; all run a few rounds, the better ones more.
    The test set is not used. An interrupted search is resumed by the same command.
    """
    with nothing_kept_yet():
        limit_kernels(file, settings)
        from refprotofl.studies import CELLS, KeptResults, split_list
        from refprotofl.studies.frontier import candidates
        from refprotofl.studies.frontier.front import check
        from refprotofl.studies.frontier.front import frontier as study
        from refprotofl.studies.frontier.front_table import effort
        from refprotofl.studies.frontier.limits import read_limit

        request = candidates.Request(
            base=read_base(file, preset, settings, device),
            methods=tuple(split_list(methods)) if methods is not None else None,
            schedules=candidates.read_schedules(schedules) if schedules is not None else (),
            limit=read_limit(budget, round_budget, link, deadline),
            seeds=tuple(read_seeds(seeds)),
            protocol=protocol,
            ends=ends,
            out=out_dir,
        )
        count = read_workers(workers)
        check(request)
    say(effort(request), notes)
    with planning(out_dir, data, count, kept=KeptResults(out_dir / CELLS)) as planner:
        found = planner.conduct(study(request))
    _report(request, found, data, as_json)


def _report(request: "Request", found: "Frontier", data: Path | None, as_json: bool) -> None:
    from refprotofl.cli.report import report_finished
    from refprotofl.studies.frontier.front_table import blocks_of, command, plain, write_record, write_tables

    table = write_tables(request, found)
    record = write_record(request, found, data)
    for one in found.tried:
        if one.failed:
            warn(f"{for_terminal(one.candidate.title)}: {for_terminal(one.failed)}")
    if as_json:
        emit(json.dumps(plain(request, found, data), indent=2) + "\n")
    else:
        show_table(table, table.notes)
    blocks = blocks_of(found)
    folders = [folder for _, called in blocks for folder in called]
    if folders:
        report_finished(
            folders, request.out / "report.html", data, title=table.title, blocks=blocks, protocol=request.protocol
        )
    if len(folders) > 1:
        _draw(request, folders, blocks)
    say(f"The whole search is in {for_terminal(record)}", notes)
    winner = command(request, found, data)
    if winner is None:
        warn(
            f"No candidate that ran all its rounds keeps within {request.limit.words}: raise the limit, or name other "
            "--methods."
        )
    elif not as_json:
        say(f"Run the best: {for_terminal(winner)}")


def _draw(request: "Request", folders: list[Path], blocks: "Blocks") -> None:
    """Draw the front."""
    from refprotofl.report import draw_figures, gather

    page = gather(folders, trust_code=True, blocks=blocks, protocol=request.protocol)
    draw_figures([one for one in page.figures if one.name == "frontier"], request.out / "figures")
