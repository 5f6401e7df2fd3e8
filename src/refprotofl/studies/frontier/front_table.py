"""The results of a frontier search: its table, its report page and frontier.json."""

import json
import shlex
from pathlib import Path
from typing import Any

from refprotofl.core import counted, percent, size
from refprotofl.records import make_folders, write_whole
from refprotofl.report import Blocks, Entry, Table, estimate, paired, write_table
from refprotofl.studies.frontier.candidates import Request
from refprotofl.studies.frontier.front import CandidateResult, Frontier


def table_of(request: Request, found: Frontier) -> Table:
    """Return a table of the finished candidates, then of the eliminated ones with the rounds that they ran."""
    title = (
        f"{request.experiment.dataset}: {request.protocol} accuracy on validation data, within {request.limit.words}"
    )
    headings = (
        "method",
        "rounds x epochs",
        "Pareto front",
        request.protocol,
        *(("difference to the best",) if _is_paired(request, found) else ()),
        "bytes",
        "of the limit",
        "epochs",
        "rounds run",
    )
    notes = (
        "Pareto front: no other candidate has both a better accuracy and fewer bytes. Bold: the best within the limit.",
        "Bytes: uplink, downlink and one-time traffic of all clients; those of eliminated candidates are projected.",
        "Epochs: local epochs, in all rounds, of a client that takes part in every round.",
        *(f"{name}: {method}" for name, method in _named(request)),
    )
    rows = tuple(_row(request, one, found.winner, _is_paired(request, found)) for one in found.tried)
    records = tuple(_record(request, one) for one in found.tried)
    return Table("frontier", title, headings, rows, records, notes, left=3)


def _named(request: Request) -> dict[tuple[str, str], None]:
    """Return the methods that names stand for; with `fit`, the bytes differ from schedule to schedule."""
    every = ((one.name, one.method) for one in request.candidates)
    return dict.fromkeys(pair for pair in every if pair[0] != pair[1])


def _is_paired(request: Request, found: Frontier) -> bool:
    return found.winner is not None and len(request.seeds) > 1


def _row(
    request: Request, one: CandidateResult, best: CandidateResult | None, with_difference: bool
) -> tuple[Entry, ...]:
    schedule = one.candidate.schedule
    front = "-" if one.failed else "yes" if one.front else "no" if one.finished else "eliminated"
    sent = ("-", "-") if one.failed else (size(one.sent.total), f"{100 * one.share:.0f} %")
    words = (
        *(one.candidate.name, str(schedule), front, "failed" if one.failed else _accuracy(one)),
        *((_to_best(one, best),) if with_difference else ()),
        *(*sent, str(request.epochs(one.candidate)), f"{one.rounds} of {schedule.rounds}"),
    )
    return tuple(Entry(text, "best" if one is best and column == 3 else "behind") for column, text in enumerate(words))


def _to_best(one: CandidateResult, best: CandidateResult | None) -> str:
    """Return the difference paired by seed; eliminated candidates, which had fewer rounds, have none."""
    pair = paired(one.values, best.values) if best and one is not best and one.finished else None
    return "-" if pair is None or pair.half_width is None else f"{100 * pair.mean:+z.2f} ± {100 * pair.half_width:.2f}"


def _accuracy(one: CandidateResult) -> str:
    found = estimate(list(one.values.values()))
    spread = "" if found.half_width is None else f" ± {100 * found.half_width:.2f}"
    return percent(found.mean) + spread


def _record(request: Request, one: CandidateResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.candidate.name,
        "method": one.candidate.method,
        "rounds": one.candidate.schedule.rounds,
        "local_epochs": one.candidate.schedule.epochs,
        "epochs": request.epochs(one.candidate),
        "rounds_run": one.rounds,
    }
    if one.failed:
        return {**found, "failed": one.failed}
    sent = {"uplink": one.sent.up, "downlink": one.sent.down, "one_off": one.sent.once, "bytes": one.sent.total}
    values = {f"seed_{seed}": value for seed, value in one.values.items()}
    return {**found, "accuracy": one.accuracy, **sent, "share": one.share, "front": one.front, **values}


def plain(request: Request, found: Frontier, data: Path | None) -> dict[str, Any]:
    """Return the whole search as plain values."""
    return {
        "schema": 1,
        "protocol": request.protocol,
        "seeds": list(request.seeds),
        "limit": request.limit.words,
        "experiment": request.searched.plain(),
        "candidates": [_record(request, one) for one in found.tried],
        "winner": None if found.winner is None else _record(request, found.winner),
        "command": command(request, found, data),
    }


def command(request: Request, found: Frontier, data: Path | None) -> str | None:
    """Return the command that runs the winner."""
    return None if found.winner is None else shlex.join(request.command(found.winner.candidate, data))


def write_tables(request: Request, found: Frontier) -> Table:
    """Write the table in all formats, and return it."""
    table = table_of(request, found)
    write_table(request.out / "tables", table)
    return table


def write_record(request: Request, found: Frontier, data: Path | None) -> Path:
    path = request.out / "frontier.json"
    make_folders(path.parent)
    write_whole(path, (json.dumps(plain(request, found, data), indent=2) + "\n").encode())
    return path


def blocks_of(found: Frontier) -> Blocks:
    """Return the finished runs as one block of the report, although their schedules differ."""
    called = {folder: one.candidate.title for one in found.tried if one.finished for folder in one.folders}
    return [("", called)]


def effort(request: Request) -> str:
    """Return the size of the search in words."""
    count = len(request.candidates)
    whole = "all" if request.ends >= count else f"at least {request.ends}"
    return f"{counted(count, 'candidate')} with {counted(len(request.seeds), 'seed')}; {whole} of them run all rounds"
