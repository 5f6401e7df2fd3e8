"""Tables of the studies: each block in detail, all blocks of a study side by side, and the traffic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refprotofl.core import counted, percent, size
from refprotofl.evaluation import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.report import (
    Entry,
    Estimate,
    Standing,
    Table,
    difference,
    estimate,
    margin_note,
    models_note,
    scores_differ,
    standings,
    with_interval,
    with_two_models,
)
from refprotofl.report.formats import points, subset_note
from refprotofl.studies.reproduce.cells import Read, read_study, record
from refprotofl.studies.reproduce.statistics import (
    ENOUGH,
    any_missing,
    average,
    average_record,
    average_setting,
    differences,
    printed_average,
)
from refprotofl.studies.reproduce.studies import Grid, Results, Row, Study
from refprotofl.studies.reproduce.verdicts import RULE, Setting, verdict
from refprotofl.studies.rows import key_of

MISSING = "missing"
_MARKED = "Bold: the best mean; †: within noise of it by the paired interval"
_BYTES = "Bytes of all clients and rounds, without evaluation; once: the public set and joining"
_OF_FEDAVG = (
    "Of FedAvg's: total bytes over those of whole models in float32 in both directions, same clients and rounds"
)
_OF_REFERENCE = (
    "Total, of that of a row: total bytes over its; the second row is the cheapest FedAvg within a point of the first"
)
_SIDE_BY_SIDE = ("global", "personal", "own")
_TRAFFIC = ("uplink", "downlink", "one_off", "total")


def detail(read: Read) -> Table:
    """Build the detailed table of one block: one row per method, with all its numbers."""
    study, block, rows = read.study, read.block, read.block.rows
    marks = _standings([read.values(row) for row in rows])
    return Table(
        name=f"{study.name}-{block.file_name}",
        title=f"{study.title}: {block.label}, preset {read.grid.preset}",
        headings=tuple(_headings(read)),
        rows=tuple(_line(read, row, mark) for row, mark in zip(rows, marks, strict=True)),
        records=tuple(record(read, row) for row in rows),
        notes=(
            *(*_setting([read]), *_evaluations(read)),
            *(_family(read), _MARKED, *_verdicts(read)),
            *(_BYTES, _OF_FEDAVG, *((_OF_REFERENCE,) if study.references else ())),
            *(*study.notes, *_tuning([read]), *((RULE,) if _is_printed(read) else ()), *_method_notes([read])),
        ),
        left=2,
        about=_about(read.grid, study) | {"dataset": block.dataset, "alpha": block.alpha},
    )


def _headings(read: Read) -> list[str]:
    return [
        *("method", "shares", read.study.protocol, *_other_protocols(read), "seeds"),
        *(f"difference to {read.baseline}", *_if_judged(read, "verdict", f"verdict of {read.baseline}")),
        *("last evaluations", "worst client", "spread over clients"),
        *("up", "down", "once", "total", "of FedAvg's", "local epochs", "steps"),
        *((f"up, of {read.baseline}'s",) if read.study.equal_bytes else ()),
        *(f"total, of that of {label}" for label in _references(read)),
        *(("paper", "against the paper") if _is_printed(read) else ()),
    ]


def _line(read: Read, row: Row, standing: Standing) -> tuple[Entry, ...]:
    texts = [
        *(row.label, *(_measured(read, row) if row.label in read.rows else _not_run(read, row))),
        *((_share(_of_baseline(read, row)),) if read.study.equal_bytes else ()),
        *(_fraction(read.share_of(row, label)) for label in _references(read)),
        *(_printed(read, row) if _is_printed(read) else ()),
    ]
    return tuple(Entry(text, standing if column == 2 else "behind") for column, text in enumerate(texts))


def _is_printed(read: Read) -> bool:
    """Return True if the paper prints a value for at least one row."""
    return any(row.paper is not None for row in read.block.rows)


def _measured(read: Read, row: Row) -> list[str]:
    """Format a row's measurements up to its costs; a dash for a number that the method does not have."""
    known, protocol = read.rows[row.label], read.study.protocol
    against = known.against.differences.get(protocol) if known.against else None
    return [
        *(known.share, with_interval(known.accuracy.get(protocol))),
        *(*(with_interval(known.accuracy.get(one)) for one in _other_protocols(read)), read.count(row)),
        "baseline" if known.against is None else difference(against),
        *_if_judged(read, *((against.verdict or "-", against.baseline_verdict or "-") if against else ("-", "-"))),
        with_interval(known.last.get(protocol)),
        percent(known.worst.get(protocol)),
        points(known.client_spread.get(protocol)),
        *(size(known.bytes[name]) for name in _TRAFFIC),
        *(_share(record(read, row)["share_of_fedavg"]), f"{known.local_epochs:,.0f}", _whole(known.steps)),
    ]


def _not_run(read: Read, row: Row) -> list[str]:
    """Return the same cells of a row without a finished run."""
    others = ["-"] * len(_other_protocols(read))
    return ["-", MISSING, *others, read.count(row), *_if_judged(read, "-", "-"), *["-"] * 11]


def _if_judged(read: Read, *cells: str) -> tuple[str, ...]:
    """Return the cells of the columns of verdicts, which are there with a margin."""
    return () if read.grid.margin is None else cells


def _verdicts(read: Read) -> list[str]:
    opposite = f"The verdict of {read.baseline} is that of the opposite difference: {read.baseline} against the row"
    return [] if read.grid.margin is None else [margin_note(read.grid.margin), opposite]


def _other_protocols(read: Read) -> tuple[str, ...]:
    """Return the protocols that are shown next to the study's own, where they differ from it in any row."""
    rows, own = read.rows.values(), read.study.protocol
    known = {one for row in rows for one in row.accuracy if own not in row.accuracy or scores_differ(row, one, own)}
    return tuple(protocol for protocol in _SIDE_BY_SIDE if protocol in known)


def _family(read: Read) -> str:
    differences = [row.against.differences.get(read.study.protocol) for row in read.rows.values() if row.against]
    tested = sum(one is not None and one.p_holm is not None for one in differences)
    family = f"the {counted(tested, 'difference')} to {read.baseline} in this table"
    return f"Differences are paired by seed, their p-values corrected by Holm over {family}"


def _references(read: Read) -> tuple[str, ...]:
    """Return the labels of the reference rows that have results, each once."""
    named = (*read.study.references[:1], read.cheapest)
    return tuple(dict.fromkeys(label for label in named if label in read.rows))


def _fraction(share: float | None) -> str:
    return "-" if not share else f"1/{1 / share:.0f}" if share < 0.1 else f"{share:.2f}"


def _of_baseline(read: Read, row: Row) -> float | None:
    known, base = read.rows.get(row.label), read.rows.get(read.baseline)
    return known.bytes["uplink"] / base.bytes["uplink"] if known and base and base.bytes["uplink"] else None


def _printed(read: Read, row: Row) -> tuple[str, str]:
    """Format the paper's value and the verdict on ours."""
    if row.paper is None:
        return "-", "-"
    found = read.estimate(row)
    return f"{row.paper:.2f} %", "-" if found is None else verdict(found, row.paper, read.setting(row))


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def _whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def overview(study: Study, reads: Sequence[Read]) -> Table:
    """Build the table of all blocks side by side; several blocks get an average column, as in the paper."""
    labels = list(dict.fromkeys(row.label for read in reads for row in read.block.rows))
    grid, columns = reads[0].grid, {read.block.label: _column(read, labels) for read in reads}
    records = [record(read, row) for read in reads for row in read.block.rows]
    if len(reads) > 1:
        columns["average"] = _average_column(reads, labels)
        records += [average_record(reads, label) for label in labels]
    return Table(
        name=study.name,
        title=f"{study.title}, preset {grid.preset}",
        headings=("method", *columns),
        rows=tuple((Entry(label), *entries) for label, *entries in zip(labels, *columns.values(), strict=True)),
        records=tuple(records),
        notes=(
            *(*_setting(reads), *_legend(reads), *study.notes, *_tuning(reads)),
            *(*_method_notes(reads), *_missing(reads)),
        ),
        about=_about(grid, study),
    )


def _column(read: Read, labels: Sequence[str]) -> list[Entry]:
    """Return a block's entries in the order of the labels."""
    by_label = {row.label: row for row in read.block.rows}
    marks = _standings([read.values(by_label[label]) if label in by_label else {} for label in labels])
    return [
        _entry(read, by_label[label], mark) if label in by_label else Entry("-")
        for label, mark in zip(labels, marks, strict=True)
    ]


def _entry(read: Read, row: Row, standing: Standing) -> Entry:
    if row.label not in read.rows:
        return Entry(MISSING + _in_brackets(None, row.paper, read.setting(row)))
    found = read.estimate(row)
    few = f" ({read.count(row)} seeds)" if read.missing(row) else ""
    return Entry(f"{with_interval(found)}{few}{_in_brackets(found, row.paper, read.setting(row))}", standing)


def _in_brackets(found: Estimate | None, printed: float | None, setting: Setting) -> str:
    """Format the paper's value, with a verdict if the setting is the paper's."""
    if printed is None:
        return ""
    said = f", {verdict(found, printed, setting)}" if found and setting == "paper's" else ""
    return f" [{printed:.2f}{said}]"


def _average_column(reads: Sequence[Read], labels: Sequence[str]) -> list[Entry]:
    averages = [average(reads, label) for label in labels]
    entries = []
    for label, values, standing in zip(labels, averages, _standings(averages), strict=True):
        found = estimate(list(values.values())) if values else None
        asked = len(reads[0].grid.seeds)
        few = f" ({found.count} of {asked} seeds)" if found and found.count < asked else ""
        shown = with_interval(found) if found else MISSING if any_missing(reads, label) else "-"
        printed = _in_brackets(found, printed_average(reads, label), average_setting(reads, label))
        entries.append(Entry(f"{shown}{few}{printed}", standing))
    return entries


def _standings(rivals: Sequence[Mapping[int, float]]) -> list[Standing]:
    """Mark the best of two or more rows; a single row gets no mark."""
    return standings(rivals) if len(rivals) > 1 else ["behind"] * len(rivals)


def communication(read: Read) -> Table:
    """Build the traffic table, which the paper only describes: values, bytes, points per megabyte."""
    counts = ("parameters_up", "parameters_down", "prototype_values_up", "prototype_values_down")
    headings = (
        *("method", *(name.replace("_", " ") for name in counts), "bytes up", "bytes down", "bytes once"),
        *("bytes total", "messages", "of FedAvg's", read.study.protocol, "points per megabyte"),
    )

    def sent(row: Row) -> list[str]:
        if row.label not in read.rows:
            return [MISSING, *["-"] * (len(headings) - 2)]
        values, found = record(read, row), read.estimate(row)
        bought = values["points_per_megabyte"]
        return [
            *(_whole(values[name]) for name in counts),
            *(size(values[f"{name}_bytes"]) for name in _TRAFFIC),
            *(_whole(values["messages"]), _share(values["share_of_fedavg"]), with_interval(found)),
            "-" if bought is None else f"{bought:,.2f}",
        ]

    return Table(
        name=f"communication-{read.block.file_name}",
        title=f"Communication, {read.study.variant} variant: {read.block.label}, preset {read.grid.preset}",
        headings=headings,
        rows=tuple(tuple(map(Entry, (row.label, *sent(row)))) for row in read.block.rows),
        records=tuple(record(read, row) for row in read.block.rows),
        notes=(
            *(*_setting([read]), _BYTES, _OF_FEDAVG),
            "Points per megabyte: accuracy in percent over total megabytes, where the method sends any",
            *(*_tuning([read]), *_missing([read])),
        ),
        about=_about(read.grid, read.study) | {"dataset": read.block.dataset, "alpha": read.block.alpha},
    )


def _about(grid: Grid, study: Study) -> dict[str, Any]:
    return {
        **{"study": study.name, "variant": study.variant, "protocol": study.protocol},
        **{"preset": grid.preset, "settings": list(grid.settings), "seeds": list(grid.seeds)},
    }


def _setting(reads: Sequence[Read]) -> list[str]:
    """Describe the settings that all runs share, and how they are scored."""
    protocol = reads[0].study.protocol
    same = "; for methods with one common model it equals global" if protocol == "personal" else ""
    rows = [row for read in reads for row in read.rows.values()]
    meaning = PROTOCOLS[protocol].definition(rows[0].validation if rows else 0.0)
    said = [f"{protocol}: {meaning}{same}. Mean over seeds with 95 % interval, last round"]
    said += _other_globals(reads) if protocol == "personal" else models_note(rows)
    settings = {key_of(one): one for one in (*reads[0].grid.settings, *reads[0].block.settings)}
    if settings:
        said.append(f"Settings that differ from the preset: {', '.join(settings.values())}")
    results = [one for read in reads for found in read.results.values() for one in found]
    if not results:
        return said
    ran = Experiment.parse(results[0]["summary"]["experiment"])
    limit = f"{ran.train_limit:,} training images" if ran.train_limit else "all training images"
    *others, most = sorted({one["summary"]["experiment"]["rounds"] for one in results})
    rounds = "".join(f"{one} or " for one in others) + counted(most, "round")
    return [*said, f"{counted(ran.clients, 'client')}, {rounds}, {ran.model.name}, {limit}"]


def _other_globals(reads: Sequence[Read]) -> list[str]:
    """Report the common model's accuracy of methods whose clients also end with private models."""
    apart = [
        f"{label} on {read.block.label} {percent(read.rows[label].accuracy['global'].mean)}"
        for read in reads
        for label in with_two_models(list(read.rows.values()))
    ]
    return (
        [f"Different models: personal scores clients' own models; the common model has, by global: {'; '.join(apart)}"]
        if apart
        else []
    )


def _evaluations(read: Read) -> list[str]:
    counts = {row.evaluations for row in read.rows.values() if row.evaluations > 1}
    note = subset_note(read.rows.values())
    return [f"Last evaluations: the mean of the last {count}, never the best round{note}" for count in counts]


def _legend(reads: Sequence[Read]) -> list[str]:
    """Explain the marks next to the numbers."""
    said = [f"{_MARKED}, in each column"]
    if len(reads) > 1:
        said.append("Average: over all columns, of the seeds that every column has; none if a column is missing")
    if not any(row.paper is not None for read in reads for row in read.block.rows):
        return said
    if reads[0].grid.setting == "paper's":
        return [*said, f"In brackets what the paper prints. {RULE}"]
    return [*said, f"In brackets what the paper prints, for a {reads[0].grid.setting} setting: no verdict"]


def _tuning(reads: Sequence[Read]) -> list[str]:
    """List the settings that a search chose, by row."""
    tuned = [(read.block.dataset, row.label, ", ".join(read.tuned(row))) for read in reads for row in read.block.rows]
    entries = dict.fromkeys(f"{dataset}, {label}: {settings}" for dataset, label, settings in tuned if settings)
    if not entries:
        return []
    elsewhere = {one: on for one, on in reads[0].grid.chosen_on.items() if any(one == name for name, *_ in tuned)}
    return [
        f"Tuned on validation data; the other rows have the preset's settings: {'; '.join(entries)}",
        *_ends(reads),
        *(f"The settings of {one} were chosen on {on}" for one, on in elsewhere.items()),
    ]


def _ends(reads: Sequence[Read]) -> list[str]:
    """List the rows with a value at an end of its grid, by data set and value."""
    labels: dict[tuple[str, str], list[str]] = {}
    for read in reads:
        for row in read.block.rows:
            for setting in read.at_an_end(row):
                known = labels.setdefault((read.block.dataset, setting), [])
                known += [row.label] * (row.label not in known)
    if not labels:
        return []
    found = [f"{dataset}, {setting} ({', '.join(rows)})" for (dataset, setting), rows in labels.items()]
    return [f"Chosen at an end of its grid, beyond which better values may lie: {'; '.join(found)}"]


def _method_notes(reads: Sequence[Read]) -> list[str]:
    """List the differences to the published methods, each once, after the rows that it concerns."""
    labels: dict[str, set[str]] = {}
    for read in reads:
        for label, row in read.rows.items():
            for note in row.notes:
                labels.setdefault(note, set()).add(label)
    # "RefProtoFL" includes "RefProtoFL + public images".
    stems = {note: [one for one in found if not _extends(one, found)] for note, found in labels.items()}
    return [f"{', '.join(sorted(found))}: {note}" for note, found in stems.items()]


def _extends(label: str, others: Iterable[str]) -> bool:
    return any(label.startswith((f"{other} ", f"{other},")) for other in others)


def _missing(reads: Sequence[Read]) -> list[str]:
    lacking = [
        f"{row.label} on {read.block.label} ({read.count(row)} seeds)"
        for read in reads
        for row in read.block.rows
        if read.missing(row)
    ]
    return [f"Missing runs: {'; '.join(lacking)}"] if lacking else []


@dataclass(frozen=True)
class Tables:
    overviews: list[Table] = field(default_factory=list)  # printed and written
    details: list[Table] = field(default_factory=list)  # written only


def build_tables(name: str, grid: Grid, results: Results, last: int) -> Tables:
    """Build the tables of a grid: per study an overview, its blocks in detail and their differences."""
    tables = Tables()
    for study in grid.studies if name != "tsne-figure" else ():
        reads = read_study(grid, study, results, last)
        if name == "communication":
            tables.overviews.extend(map(communication, reads))
        else:
            tables.overviews.append(overview(study, reads))
            tables.details.extend(map(detail, reads))
            tables.details.extend(differences(read) for read in reads if len(read.rows) >= ENOUGH)
    return tables
