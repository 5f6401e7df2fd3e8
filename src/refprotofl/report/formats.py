"""The formats of a comparison: the columns of its tables, Markdown, LaTeX, CSV and JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from refprotofl.core import InputError, counted, percent, size
from refprotofl.evaluation import METRICS, PROTOCOLS
from refprotofl.privacy import epsilon_cell, epsilon_meaning
from refprotofl.report.comparison import Difference, OverSeeds, ToTarget, headline, shared_protocols, with_two_models
from refprotofl.report.statistics import Estimate, Standing, standings
from refprotofl.report.tables import Entry, Table, csv_of
from refprotofl.report.tables import as_latex as table_as_latex
from refprotofl.report.tables import as_markdown as table_as_markdown


def nested(row: OverSeeds, headline: str) -> dict[str, Any]:
    """Return a row as nested plain values; `headline` is the protocol that the table leads with."""
    accuracy = {
        protocol: {"mean": found.mean, "half_width": found.half_width, "values": row.values[protocol]}
        for protocol, found in row.accuracy.items()
    }
    last = {
        protocol: {"mean": found.mean, "half_width": found.half_width, "evaluations": row.evaluations}
        for protocol, found in row.last.items()
    }
    return {
        "name": row.name,
        "asked": row.asked or row.name,
        "share": row.share,
        "scored_on": "validation" if row.validation else "test",
        "accuracy": accuracy,
        "metrics": {
            protocol: {name: {"mean": one.mean, "half_width": one.half_width} for name, one in found.items()}
            for protocol, found in row.metrics.items()
        },
        "worst": row.worst,
        "client_spread": row.client_spread,
        "last": last,
        "bytes": row.bytes,
        "against": _against(row, headline),
        "local_epochs": row.local_epochs,
        "steps": row.steps,
        "seconds": row.seconds,
        "to_target": _to_target(row),
        "privacy": row.privacy,
        "facts": row.facts,
        "notes": list(row.notes),
        "runs": list(row.runs),
    }


def _to_target(row: OverSeeds) -> dict[str, Any] | None:
    """Return what it took to the target: means if every seed reached it, and the values of those that did."""
    found = row.to_target
    if found is None:
        return None
    means = {name: found.estimate(name) for name in TO_TARGET}
    return {
        "protocol": found.protocol,
        "target": found.target,
        "reached": len(found.reached),
        **{name: None if mean is None else mean.mean for name, mean in means.items()},
        "values": found.reached,
    }


def _against(row: OverSeeds, headline: str) -> dict[str, Any] | None:
    """Return the headline's difference, and all differences by protocol."""
    if row.against is None:
        return None
    found = row.against.differences
    return {
        "baseline": row.against.baseline,
        "protocol": headline,
        "margin": row.against.margin,
        **_difference(found.get(headline)),
        "by_protocol": {name: _difference(one) for name, one in found.items()},
    }


def _difference(found: Difference | None) -> dict[str, Any]:
    if found is None:
        unknown = dict.fromkeys(("mean", "half_width", "p", "p_holm"))
        return {**unknown, "seeds": 0, "within_noise": None, "verdict": None}
    pair = found.paired
    return {
        "mean": pair.mean,
        "half_width": pair.half_width,
        "p": pair.p,
        "p_holm": found.p_holm,
        "seeds": pair.count,
        "within_noise": pair.within_noise,
        "verdict": found.verdict,
    }


def flat(row: OverSeeds, protocols: Sequence[str]) -> dict[str, object]:
    """Return a row as plain values by column, the same columns for all rows."""
    line: dict[str, object] = {"method": row.name, "share": row.share, "seeds": len(row.runs)}
    for protocol in protocols:
        line |= _flat_accuracy(row, protocol)
        others = {name: row.metrics.get(protocol, {}).get(name) for name in METRICS if name != "accuracy"}
        line |= {f"{protocol}_{name}": found and found.mean for name, found in others.items()}
    line |= {"baseline": row.against.baseline if row.against else None, "last_evaluations": row.evaluations}
    line |= {"margin": row.against.margin if row.against else None}
    line |= {f"{key}_bytes": sent for key, sent in row.bytes.items()}
    line |= {"epsilon": row.privacy and row.privacy["epsilon"], "privacy_unit": row.privacy and row.privacy["unit"]}
    return {**line, "local_epochs": row.local_epochs, "steps": row.steps, "seconds": row.seconds}


def _flat_accuracy(row: OverSeeds, protocol: str) -> dict[str, object]:
    found, last = row.accuracy.get(protocol), row.last.get(protocol)
    against = _difference(row.against.differences.get(protocol) if row.against else None)
    return {
        protocol: found and found.mean,
        f"{protocol}_half_width": found and found.half_width,
        f"{protocol}_difference": against["mean"],
        f"{protocol}_difference_half_width": against["half_width"],
        f"{protocol}_p": against["p"],
        f"{protocol}_p_holm": against["p_holm"],
        f"{protocol}_verdict": against["verdict"],
        f"{protocol}_worst": row.worst.get(protocol),
        f"{protocol}_client_spread": row.client_spread.get(protocol),
        f"{protocol}_last": last and last.mean,
        f"{protocol}_last_half_width": last and last.half_width,
    }


Cells = tuple[list[str], list[list[str]]]  # headings, and the cells of each row

BYTES = {"uplink": "uplink", "downlink": "downlink", "one_off": "one-off", "total": "total"}


def accuracies(rows: Sequence[OverSeeds]) -> Cells:
    """Return the columns of accuracy: the shared parts, the headline's protocol, the others, and the difference.

    Protocols that only some rows have are the last columns.
    """
    first, by_client = headline(rows), _by_client(rows)
    protocols = {one: [with_interval(row.accuracy.get(one)) for row in rows] for one in protocols_of(rows)}
    columns = {
        "shares": [row.share for row in rows],
        first: [with_interval(row.accuracy.get(first)) for row in rows],
        **{one: protocols[one] for one in shared_protocols(rows) if one != first},
        "epsilon": ["-" if row.privacy is None else epsilon_cell(row.privacy) for row in rows],
        "difference": _differences(rows, first),
        "verdict": _verdicts(rows, first),
        f"last {rows[0].evaluations}": [with_interval(row.last.get(first)) for row in rows],
        "worst client": [percent(row.worst.get(by_client)) for row in rows],
        "spread": [points(row.client_spread.get(by_client)) for row in rows],
    }
    columns |= {protocol: cells for protocol, cells in protocols.items() if protocol not in columns}
    shown = {name: cells for name, cells in columns.items() if name in ("shares", first) or set(cells) != {"-"}}
    return list(shown), [list(line) for line in zip(*shown.values(), strict=True)]


def _by_client(rows: Sequence[OverSeeds]) -> str:
    """Return the protocol of columns about single clients: under one global model these differ by their data alone."""
    first = headline(rows)
    return first if PROTOCOLS[first].per_client else "own"


def _differences(rows: Sequence[OverSeeds], protocol: str) -> list[str]:
    if all(row.against is None for row in rows):
        return ["-"] * len(rows)
    return ["baseline" if row.against is None else difference(row.against.differences.get(protocol)) for row in rows]


def _verdicts(rows: Sequence[OverSeeds], protocol: str) -> list[str]:
    sides = [row.against for row in rows]
    found = [side.differences.get(protocol) if side else None for side in sides]
    return [one.verdict or "-" if one else "-" for one in found]


def margin_note(margin: float) -> str:
    """Return the explanation of verdicts."""
    size = f"{100 * margin:g} {'point' if margin == 0.01 else 'points'}"
    return (
        f"Verdict, by the 95 % interval and a margin of {size}, the first that holds: better: it lies "
        "above 0; not worse by more than the margin: its lower end is above minus the margin; worse: its upper end is "
        "below 0; else undecided. Verdicts are not corrected for their number"
    )


def models_note(rows: Sequence[OverSeeds]) -> list[str]:
    """Return which columns come from different models, if any row has two."""
    names = dict.fromkeys(with_two_models(rows))
    if not names:
        return []
    others = [name for name in dict.fromkeys(row.name for row in rows if "global" in row.accuracy) if name not in names]
    listed = "; ".join(names) if len(names) <= len(others) + 1 else "every row that has global"
    exceptions = f" but {'; '.join(others)}" if others and len(names) > len(others) + 1 else ""
    return [
        "Different models: global is the score of the common model; personal and own are scores of each client's own "
        f"model, which differs from it in {listed}{exceptions}"
    ]


def difference(found: Difference | None) -> str:
    """Return a difference in points with its interval, and a p-value unless the interval contains 0."""
    if found is None:
        return "-"
    mean, half_width = f"{100 * found.paired.mean:+z.2f}", found.paired.half_width
    if half_width is None or found.p_holm is None:
        return f"{mean} (one seed)"
    certainty = "within noise" if found.paired.within_noise else _p_value(found.p_holm)
    return f"{mean} ± {100 * half_width:.2f} ({certainty})"


def short_difference(found: Difference | None) -> str:
    """Return a difference for a narrow column, with a star if its corrected p-value is below 0.05."""
    if found is None:
        return "-"
    mean, half_width = f"{100 * found.paired.mean:+z.2f}", found.paired.half_width
    if half_width is None:
        return f"{mean} (one seed)"
    sure = found.p_holm is not None and found.p_holm < 0.05
    return f"{mean} ± {100 * half_width:.2f}{'*' if sure else ''}"


def _p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def points(share: float | None) -> str:
    """Return a share in points, without a percent sign."""
    return "-" if share is None else f"{100 * share:.2f}"


def legend(rows: Sequence[OverSeeds]) -> list[str]:
    """Return the explanations of the columns of accuracy."""
    first, headings, evaluations = headline(rows), accuracies(rows)[0], rows[0].evaluations
    definition = PROTOCOLS[first].definition(rows[0].validation)
    lines = [f"headline: {first}, {definition}", *models_note(rows), *_difference_legend(rows, first)]
    lines += dict.fromkeys(f"epsilon: {epsilon_meaning(row.privacy)}" for row in rows if row.privacy is not None)
    if f"last {evaluations}" in headings:
        lines.append(f"last {evaluations}: {first}, mean of the last {evaluations} evaluations{subset_note(rows)}")
    if "spread" in headings:
        by_client = _by_client(rows)
        lines.append(f"worst client, spread: lowest {by_client} and standard deviation over clients, means over seeds")
    return lines


def subset_note(rows: Iterable[OverSeeds]) -> str:
    """Return on what evaluations before the last round were scored, if not on the whole test set."""
    sizes = sorted({row.subset for row in rows if row.subset is not None})
    return f"; before the last round on {' or '.join(f'{size:,}' for size in sizes)} test samples" if sizes else ""


def _difference_legend(rows: Sequence[OverSeeds], protocol: str) -> list[str]:
    sides = [row.against for row in rows if row.against is not None]
    found = [side.differences[protocol] for side in sides if protocol in side.differences]
    if not found:
        return []
    line = f"difference: to {sides[0].baseline}, in points of {protocol}, paired by seed"
    tested = sum(one.p_holm is not None for one in found)
    if not tested:
        return [line]
    margin = sides[0].margin
    return [
        f"{line}, 95 % interval; p by Student's t, Holm-corrected for {counted(tested, 'difference')}; "
        "within noise: the interval contains 0",
        *([] if margin is None else [margin_note(margin)]),
    ]


def metric_values(rows: Sequence[OverSeeds]) -> Cells:
    """Return the metrics of the headline's protocol other than accuracy; no headings where no method has any."""
    first = headline(rows)
    found = [row.metrics.get(first, {}) for row in rows]
    names = [name for name in METRICS if name != "accuracy" and any(name in one for one in found)]
    lines = [
        [METRICS[name].show(one[name].mean, one[name].half_width) if name in one else "-" for name in names]
        for one in found
    ]
    return [METRICS[name].title for name in names], lines


TO_TARGET = ("rounds", "bytes", "seconds")


def targets(rows: Sequence[OverSeeds]) -> Cells:
    """Return the columns of what it took to the target; no headings if none was asked for."""
    found = [row.to_target for row in rows]
    first = found[0] if found else None
    if first is None:
        return [], [[] for _ in rows]
    headings = [f"{name} to {percent(first.target)} {first.protocol}" for name in TO_TARGET]
    return headings, [[_until(one, name) for name in TO_TARGET] if one else ["-"] * len(TO_TARGET) for one in found]


def _until(found: ToTarget, quantity: str) -> str:
    mean = found.estimate(quantity)
    if mean is None:
        return f"reached by {len(found.reached)} of {found.seeds}" if quantity == TO_TARGET[0] else "-"
    return size(mean.mean) if quantity == "bytes" else f"{mean.mean:,.1f}"


def efforts(rows: Sequence[OverSeeds]) -> Cells:
    """Return the columns of cost: bytes, local epochs, steps and time."""
    headings = [*BYTES.values(), "local epochs", "steps", "seconds"]
    return headings, [
        [
            *(size(row.bytes[key]) for key in BYTES),
            f"{row.local_epochs:,.0f}" if row.local_epochs else "-",
            "-" if row.steps is None else f"{row.steps:,.0f}",
            f"{row.seconds:,.1f}",
        ]
        for row in rows
    ]


def _all_cells(rows: Sequence[OverSeeds]) -> Cells:
    parts = [accuracies(rows), metric_values(rows), efforts(rows), targets(rows)]
    headings = ["method", *(heading for part, _ in parts for heading in part)]
    lines = zip(rows, *(cells for _, cells in parts), strict=True)
    return headings, [[row.name, *(cell for part in line for cell in part)] for row, *line in lines]


def with_interval(value: Estimate | None) -> str:
    if value is None:
        return "-"
    spread = "" if value.half_width is None else f" ± {100 * value.half_width:.2f}"
    return f"{percent(value.mean)}{spread}"


def footnotes(rows: Sequence[OverSeeds]) -> list[str]:
    """Return the footnotes: methods behind names, method notes, and differences to the published methods."""
    return [
        line
        for row in rows
        for line in (*([f"{row.name}: {row.asked}"] if row.asked else ()), *_facts(row), *_notes(row))
    ]


def _notes(row: OverSeeds) -> list[str]:
    return [f"{row.name}: {note}" for note in row.notes]


def _facts(row: OverSeeds) -> list[str]:
    facts = "; ".join(f"{fact.replace('_', ' ')} {_over_seeds(values)}" for fact, values in row.facts.items())
    return [f"{row.name}: {facts}"] if facts else []


def _over_seeds(values: dict[int, Any]) -> str:
    """Return a fact once if all seeds agree, else seed by seed."""
    shown = {seed: f"{value:.4g}" if isinstance(value, float) else str(value) for seed, value in values.items()}
    if len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return ", ".join(f"{value} (seed {seed})" for seed, value in shown.items())


def long_form(rows: Sequence[OverSeeds]) -> list[dict[str, object]]:
    """Return a record for each row, seed and protocol, as data frames and plotting libraries take them."""
    return [
        {"method": row.name, "share": row.share, "seed": seed, "protocol": protocol, "accuracy": accuracy}
        | {f"{key}_bytes": by_seed.get(seed) for key, by_seed in row.bytes_by_seed.items()}
        | {"run": row.runs[place]}
        for row in rows
        for protocol, values in row.values.items()
        for place, (seed, accuracy) in enumerate(values.items())
    ]


def as_long_csv(rows: Sequence[OverSeeds], title: str = "", columns: Sequence[str] = ()) -> str:
    return csv_of(long_form(rows))


def as_json(rows: Sequence[OverSeeds], title: str = "", columns: Sequence[str] = ()) -> str:
    return json.dumps([nested(row, headline(rows)) for row in rows], indent=2) + "\n"


def as_csv(rows: Sequence[OverSeeds], title: str = "", columns: Sequence[str] = ()) -> str:
    """Return CSV of plain numbers: accuracies from 0 to 1, and bytes."""
    lines = [{**flat(row, protocols_of(rows)), "notes": "; ".join(footnotes([row]))} for row in rows]
    return csv_of(lines)


def as_markdown(rows: Sequence[OverSeeds], title: str, columns: Sequence[str] = ()) -> str:
    return table_as_markdown(picked_table(rows, title, columns))


def as_latex(rows: Sequence[OverSeeds], title: str, columns: Sequence[str] = ()) -> str:
    return table_as_latex(picked_table(rows, title, columns))


def picked_table(rows: Sequence[OverSeeds], title: str, columns: Sequence[str] = ()) -> Table:
    """Return the comparison as a table, of all columns or of those named in their order, after the method's."""
    whole = comparison_table(rows, title)
    if not columns:
        return whole
    places = [0, *(_place(one, whole.headings, headline(rows)) for one in columns)]
    picked = tuple(tuple(line[place] for place in places) for line in whole.rows)
    headings = tuple(whole.headings[place] for place in places)
    kept = ("headline", "bold", "†", *(heading.split()[0] for heading in headings[1:]))
    notes = tuple(note for note in whole.notes if note.startswith(kept))
    left = 1 + ("shares" in headings[1:2])
    return replace(whole, headings=headings, rows=picked, notes=notes, left=left, narrow=True)


def _place(column: str, headings: Sequence[str], first: str) -> int:
    """Return the place of a column by its heading, as it is or in kebab-case; `headline` is the headline protocol's."""
    wanted = first if column == "headline" else column
    names = [heading.lower().replace(" ", "-").replace("_", "-") for heading in headings]
    spelt = wanted.strip().lower().replace(" ", "-").replace("_", "-")
    spelt = "last" if spelt.startswith("last") else spelt
    names = ["last" if name.startswith("last-") else name for name in names]
    if spelt not in names[1:]:
        raise InputError(f"--columns {column}: there is no such column; columns: headline, {', '.join(names[1:])}.")
    return names.index(spelt, 1)


def comparison_table(rows: Sequence[OverSeeds], title: str, name: str = "comparison") -> Table:
    """Return the comparison as a table; the headline's cell, the third, is marked by its standing.

    Its records have no run folders: they are the same on every machine.
    """
    headings, lines = _all_cells(rows)
    entries = [
        tuple(Entry(cell, standing if place == 2 else "behind") for place, cell in enumerate(line))
        for line, standing in zip(lines, _standings(rows), strict=True)
    ]
    records = [nested(row, headline(rows)) for row in rows]
    return Table(
        name,
        title,
        tuple(headings),
        tuple(entries),
        tuple({key: value for key, value in record.items() if key != "runs"} for record in records),
        tuple(_beneath(rows)),
        left=2,
    )


def _standings(rows: Sequence[OverSeeds]) -> list[Standing]:
    """Return the standings of two rows or more; a single row is not marked."""
    found = standings([row.values.get(headline(rows), {}) for row in rows])
    return found if len(rows) > 1 else ["behind"] * len(rows)


def _beneath(rows: Sequence[OverSeeds]) -> list[str]:
    found, marks = _standings(rows), []
    if "best" in found:
        marks.append(f"bold: the best {headline(rows)}")
    if "within noise" in found:
        marks.append("†: within noise of the best, the interval of the paired difference contains 0")
    return [*legend(rows), *marks, *footnotes(rows)]


class Writer(Protocol):
    def __call__(self, rows: Sequence[OverSeeds], title: str, columns: Sequence[str] = ()) -> str: ...


FORMATS: dict[str, Writer] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "csv-long": as_long_csv,
    "json": as_json,
}


def protocols_of(rows: Sequence[OverSeeds]) -> list[str]:
    """Return the protocols that any row has."""
    return [protocol for protocol in PROTOCOLS if any(protocol in row.accuracy for row in rows)]
