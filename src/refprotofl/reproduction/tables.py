"""Blocks of runs as tables: each in detail, all of a study side by side, and what was sent."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from refprotofl.basics.units import percent, size
from refprotofl.experiment import Experiment
from refprotofl.report.comparison import OverSeeds
from refprotofl.report.formats import difference, points, with_interval
from refprotofl.report.statistics import Standing, standings
from refprotofl.report.tables import Entry, Table
from refprotofl.reproduction.reading import Read, record
from refprotofl.reproduction.studies import Row, Study
from refprotofl.reproduction.verdicts import RULE, verdict

MISSING = "missing"
_MARKS: Mapping[Standing, Literal["", "best", "level"]] = {"best": "best", "within noise": "level", "behind": ""}
_MARKED = "Bold: the best mean; †: within noise of it by the paired interval"
_BYTES = "Bytes of all clients and rounds; once: the public set and joining; evaluation is apart"
_OF_FEDAVG = "Of FedAvg's: all bytes over those of whole models in float32 both ways, same clients and rounds"

Told = Callable[[OverSeeds, dict[str, Any]], Sequence[Entry]]


def _lines(read: Read, width: int, tell: Callable[[Row, OverSeeds], Sequence[Entry]]) -> tuple[tuple[Entry, ...], ...]:
    """A line for each row; one without a finished run says so."""
    return tuple(
        (Entry(row.label), *(tell(row, read.rows[row.label]) if read.has(row.label) else [Entry(MISSING)] * width))
        for row in read.block.rows
    )


def detail(read: Read, preset: str) -> Table:
    """One block: a row a method, everything that is known of it."""
    study, protocol, block = read.study, read.study.protocol, read.block
    places = standings([read.values(row) for row in block.rows])
    marks = {row.label: _MARKS[standing] for row, standing in zip(block.rows, places, strict=True)}
    printed = any(row.paper is not None for row in block.rows)
    headings = (
        *("method", "shares", protocol, "seeds", f"difference to {read.baseline}", "last evaluations", "worst client"),
        *("spread over clients", "up", "down", "once", "total", "of FedAvg's", "local epochs", "steps"),
        *(("paper", "against the paper") if printed else ()),
    )

    def tell(row: Row, known: OverSeeds) -> list[Entry]:
        found = known.accuracy[protocol]
        against = known.against.differences.get(protocol) if known.against else None
        cells = [
            *(known.share, with_interval(found), read.count(row)),
            "baseline" if known.against is None else difference(against),
            with_interval(known.last.get(protocol)),
            percent(known.worst.get(protocol)),
            points(known.client_spread.get(protocol)),
            *(size(known.bytes[name]) for name in ("uplink", "downlink", "one_off", "total")),
            f"{record(read, row)['share_of_fedavg']:.3f}",
            f"{known.local_epochs:,.0f}",
            "-" if known.steps is None else f"{known.steps:,.0f}",
        ]
        if printed:
            said = ("-", "-") if row.paper is None else (f"{row.paper:.2f} %", verdict(found, row.paper, preset))
            cells += said
        return [Entry(cell, marks[row.label] if place == 1 else "") for place, cell in enumerate(cells)]

    return Table(
        name=f"{study.name}-{block.file_name}",
        title=f"{study.title}: {block.label}, preset {preset}",
        headings=headings,
        rows=_lines(read, len(headings) - 1, tell),
        records=tuple(record(read, row) for row in block.rows),
        notes=(*_setting(read), *_pairing(read), _BYTES, _OF_FEDAVG, *((RULE,) if printed else ())),
        left=2,
        about=_about(study, preset) | {"dataset": block.dataset, "alpha": block.alpha},
    )


def overview(study: Study, reads: Sequence[Read], preset: str) -> Table:
    """All blocks side by side, a row a method; an average only where no block is missing."""
    labels = list(dict.fromkeys(row.label for read in reads for row in read.block.rows))
    columns = [_column(read, labels) for read in reads]
    several = len(reads) > 1
    rows = [
        (Entry(label), *(column[place] for column in columns), *([_average(reads, label)] if several else []))
        for place, label in enumerate(labels)
    ]
    return Table(
        name=study.name,
        title=f"{study.title}, preset {preset}",
        headings=("method", *(read.block.label for read in reads), *(("average",) if several else ())),
        rows=tuple(rows),
        records=tuple(record(read, row) for read in reads for row in read.block.rows),
        notes=(*study.notes, *_overview_notes(reads)),
        about=_about(study, preset),
    )


def _column(read: Read, labels: Sequence[str]) -> list[Entry]:
    """A block's entries in the order of the labels."""
    by_label = {row.label: row for row in read.block.rows}
    places = standings([read.values(by_label[label]) if label in by_label else {} for label in labels])
    return [
        _entry(read, by_label[label], place) if label in by_label else Entry("-")
        for label, place in zip(labels, places, strict=True)
    ]


def _entry(read: Read, row: Row, standing: Standing) -> Entry:
    beside = "" if row.paper is None else f" [{row.paper:.2f}]"
    if not read.has(row.label):
        return Entry(f"{MISSING}{beside}")
    found = read.rows[row.label].accuracy[read.study.protocol]
    few = "" if found.count == len(read.seeds) else f" ({read.count(row)} seeds)"
    return Entry(f"{with_interval(found)}{few}{beside}", _MARKS[standing])


def _average(reads: Sequence[Read], label: str) -> Entry:
    found = [read.rows[label].accuracy[read.study.protocol].mean for read in reads if read.has(label)]
    return Entry(percent(fmean(found)) if len(found) == len(reads) else MISSING)


def communication(read: Read, preset: str) -> Table:
    """What the paper only describes: values and bytes, and what a megabyte buys."""
    counts = ("parameters_up", "parameters_down", "prototype_values_up", "prototype_values_down")
    headings = (
        *("method", *(name.replace("_", " ") for name in counts), "bytes up", "bytes down", "bytes once"),
        *("bytes in all", "messages", "of FedAvg's", read.study.protocol, "points a megabyte"),
    )

    def tell(row: Row, known: OverSeeds) -> list[Entry]:
        told = record(read, row)
        bought = told["points_per_megabyte"]
        cells = (
            *(f"{told[name]:,.0f}" for name in counts),
            *(size(known.bytes[name]) for name in ("uplink", "downlink", "one_off", "total")),
            *(f"{told['messages']:,.0f}", f"{told['share_of_fedavg']:.3f}", percent(told["mean"])),
            "-" if bought is None else f"{bought:.3g}",
        )
        return list(map(Entry, cells))

    return Table(
        name=f"communication-{read.block.file_name}",
        title=f"What was sent, {read.study.variant}: {read.block.label}, preset {preset}",
        headings=headings,
        rows=_lines(read, len(headings) - 1, tell),
        records=tuple(record(read, row) for row in read.block.rows),
        notes=(
            *(*_setting(read), _BYTES, _OF_FEDAVG),
            "Points a megabyte: accuracy in percent over all bytes in megabytes",
        ),
        about=_about(read.study, preset) | {"dataset": read.block.dataset, "alpha": read.block.alpha},
    )


def _about(study: Study, preset: str) -> dict[str, Any]:
    return {"study": study.name, "variant": study.variant, "protocol": study.protocol, "preset": preset}


def _setting(read: Read) -> list[str]:
    """What the runs have in common."""
    some = next((one for results in read.results.values() for one in results), None)
    if some is None:
        return []
    ran = Experiment.parse(some["summary"]["experiment"])
    limit = f"{ran.train_limit:,} training images" if ran.train_limit else "all training images"
    return [
        f"{ran.clients} clients, {ran.rounds} rounds, {ran.model.name}, {limit}; mean over seeds with 95 % interval"
    ]


def _pairing(read: Read) -> list[str]:
    said = [f"Differences are paired by seed, their p-values corrected by Holm within this table. {_MARKED}"]
    counts = {row.evaluations for row in read.rows.values() if row.evaluations > 1}
    return [*said, *(f"Last evaluations: the mean of the last {count}, never the best round" for count in counts)]


def _overview_notes(reads: Sequence[Read]) -> list[str]:
    said = [f"Mean over seeds with 95 % interval; in brackets what the paper prints. {_MARKED}, in each column"]
    missing = [
        f"{row.label} on {read.block.label} ({read.count(row)} seeds)"
        for read in reads
        for row in read.block.rows
        if len(read.values(row)) < len(read.seeds)
    ]
    return [*said, f"Missing so far: {'; '.join(missing)}"] if missing else said
