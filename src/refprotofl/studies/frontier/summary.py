"""A front as a table, as a page with its figure, and as a record for programs."""

import json
import shlex
from pathlib import Path
from typing import Any

from refprotofl.core.units import counted, percent, size
from refprotofl.records.atomic_files import make_folders, write_whole
from refprotofl.report.page.collect import Blocks
from refprotofl.report.statistics import estimate, paired
from refprotofl.report.tables import Entry, Table
from refprotofl.studies.frontier.candidates import Request
from refprotofl.studies.frontier.search import Found, Tried


def table_of(request: Request, found: Found) -> Table:
    """Finished candidates first, then those that were left behind, with how far they came."""
    title = f"{request.base.dataset}: {request.protocol} accuracy on validation data, within {request.limit.words}"
    headings = (
        "method",
        "rounds x epochs",
        "on the front",
        request.protocol,
        *(("to the best",) if _is_paired(request, found) else ()),
        "bytes",
        "of what is allowed",
        "epochs",
        "rounds run",
    )
    notes = (
        "On the front: beaten by no other both in accuracy and in bytes. Bold: the best within what is allowed.",
        "Bytes are those of all clients, both ways and once; of who was left behind, what all its rounds would take.",
        "Epochs are those of a client that takes part in every round, with all its rounds: who has more trains more.",
        *(f"{name}: {method}" for name, method in _named(request)),
    )
    rows = tuple(_row(request, one, found.winner, _is_paired(request, found)) for one in found.tried)
    records = tuple(_record(request, one) for one in found.tried)
    return Table("frontier", title, headings, rows, records, notes, left=3)


def _named(request: Request) -> dict[tuple[str, str], None]:
    """What names of their own stand for; one that fits has other bytes in each schedule."""
    every = ((one.name, one.method) for one in request.candidates)
    return dict.fromkeys(pair for pair in every if pair[0] != pair[1])


def _is_paired(request: Request, found: Found) -> bool:
    return found.winner is not None and len(request.seeds) > 1


def _row(request: Request, one: Tried, best: Tried | None, with_difference: bool) -> tuple[Entry, ...]:
    schedule = one.candidate.schedule
    front = "-" if one.failed else "yes" if one.front else "no" if one.finished else "left behind"
    sent = ("-", "-") if one.failed else (size(one.sent.total), f"{100 * one.share:.0f} %")
    words = (
        *(one.candidate.name, str(schedule), front, "failed" if one.failed else _accuracy(one)),
        *((_to_best(one, best),) if with_difference else ()),
        *(*sent, str(request.epochs(one.candidate)), f"{one.rounds} of {schedule.rounds}"),
    )
    return tuple(Entry(text, "best" if one is best and place == 3 else "behind") for place, text in enumerate(words))


def _to_best(one: Tried, best: Tried | None) -> str:
    """Paired by seed; of who was left behind nothing is said, as it had fewer rounds."""
    pair = paired(one.values, best.values) if best and one is not best and one.finished else None
    return "-" if pair is None or pair.half_width is None else f"{100 * pair.mean:+z.2f} ± {100 * pair.half_width:.2f}"


def _accuracy(one: Tried) -> str:
    found = estimate(list(one.values.values()))
    spread = "" if found.half_width is None else f" ± {100 * found.half_width:.2f}"
    return percent(found.mean) + spread


def _record(request: Request, one: Tried) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": one.candidate.name,
        "method": one.candidate.method,
        "rounds": one.candidate.schedule.rounds,
        "local_epochs": one.candidate.schedule.epochs,
        "epochs": request.epochs(one.candidate),
        "rounds_run": one.rounds,
    }
    if one.failed:
        return {**told, "failed": one.failed}
    sent = {"uplink": one.sent.up, "downlink": one.sent.down, "one_off": one.sent.once, "bytes": one.sent.total}
    values = {f"seed_{seed}": value for seed, value in one.values.items()}
    return {**told, "accuracy": one.accuracy, **sent, "share": one.share, "front": one.front, **values}


def plain(request: Request, found: Found, data: Path | None) -> dict[str, Any]:
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


def command(request: Request, found: Found, data: Path | None) -> str | None:
    """That runs the winner."""
    return None if found.winner is None else shlex.join(request.command(found.winner.candidate, data))


def write_record(request: Request, found: Found, data: Path | None) -> Path:
    path = request.out / "frontier.json"
    make_folders(path.parent)
    write_whole(path, (json.dumps(plain(request, found, data), indent=2) + "\n").encode())
    return path


def blocks_of(found: Found) -> Blocks:
    """The finished runs under one heading: they differ in their schedules, too."""
    called = {folder: one.candidate.title for one in found.tried if one.finished for folder in one.folders}
    return [("", called)]


def effort(request: Request) -> str:
    count = len(request.candidates)
    to_their_end = "all" if request.ends >= count else f"{request.ends} or more"
    return f"{counted(count, 'candidate')} with {counted(len(request.seeds), 'seed')}; to their end: {to_their_end}"
