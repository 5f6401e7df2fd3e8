"""The report page of one run, finished or in progress."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refprotofl.core.errors import RefProtoFLError
from refprotofl.core.network import Links
from refprotofl.core.units import counted, duration, percent, size
from refprotofl.evaluation.metrics import METRICS
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.methods.catalogue import METHODS
from refprotofl.records.manifest import read_manifest
from refprotofl.records.safe_io import CHECKPOINT
from refprotofl.report.page.anchors import prototype_figure
from refprotofl.report.page.clients import class_figures, client_figures, dropped_tables
from refprotofl.report.page.curves import Stop, link_curve, progress_of, run_curves, stops_of
from refprotofl.report.page.elements import (
    Facts,
    Figure,
    Page,
    Section,
    Table,
    Tile,
    shown,
    title,
    without_place,
    words,
)
from refprotofl.report.page.run_reader import RunTold
from refprotofl.report.page.traffic import bytes_figure, levels_table, mask_figures, time_figure


def run_page(
    told: RunTold, links: Mapping[str, Links] | None = None, data: Path | None = None, live: bool = False
) -> Page:
    """`live`: while it goes on, without what takes the checkpoint or the data."""
    stops = stops_of(told)
    headline = headline_of(stops)
    anchors, note = (None, "") if live else _anchors(told, data)
    sections = [
        Section("learning", "Accuracy and loss", run_curves(stops, headline)),
        _over_links(stops, headline, links or {}),
        Section("clients", "Clients", [*client_figures(told), *dropped_tables(told)]),
        Section("classes", "Classes", [*class_figures(told), *([anchors] if anchors else [])]),
        Section("sent", "What was sent", _sent(told)),
        Section("time", "Time", [time_figure(told.rounds)]),
        about_section(told),
    ]
    return Page(
        title=title(told.experiment, mailed=True),
        subtitle=words(told.folder.absolute().name),
        tiles=_tiles(told, stops, headline),
        sections=[with_rows(section) for section in sections if with_rows(section).parts],
        notes=[note] if note else [],
        progress=progress_of(told) if live else None,
    )


def with_rows(section: Section) -> Section:
    """Without figures that have nothing to show."""
    kept = [part for part in section.parts if not isinstance(part, Figure) or part.rows]
    return replace(section, parts=kept)


def _sent(told: RunTold) -> list[Figure | Table]:
    return [bytes_figure(told.rounds), levels_table(told), *mask_figures(told.rounds)] if told.rounds else []


def headline_of(stops: Sequence[Stop]) -> str:
    latest = stops[-1].accuracy if stops else {}
    return "personal" if latest.get("personal") is not None or latest.get("global") is None else "global"


def _anchors(told: RunTold, data: Path | None) -> tuple[Figure | None, str]:
    if not told.rounds:
        return None, ""
    try:
        return prototype_figure(told.folder, data)
    except (RefProtoFLError, OSError) as problem:
        return None, f"Anchors are not drawn: {words(problem)}"


def _over_links(stops: Sequence[Stop], headline: str, links: Mapping[str, Links]) -> Section:
    figures = [link_curve({"": stops}, headline, name, one.text) for name, one in links.items()]
    return Section("links", "Time over real links", figures)


def _tiles(told: RunTold, stops: Sequence[Stop], headline: str) -> list[Tile]:
    up, down = sum(one.up for one in told.rounds), sum(one.down for one in told.rounds)
    once = sum(one.one_off for one in told.rounds)
    reached = stops[-1].accuracy.get(headline) if stops else None
    seconds = told.summary["seconds"]["total"] if told.summary else sum(one.seconds for one in told.rounds)
    dropped = sum(told.absent.values())
    return [
        Tile(f"{headline} accuracy", percent(reached), f"after round {stops[-1].round}" if stops else ""),
        Tile("sent up", size(up), "all clients and rounds"),
        Tile("sent down", size(down), f"and {size(once)} once" if once else ""),
        Tile("rounds", f"{told.rounds_done:,}", f"of {told.experiment.rounds:,}"),
        Tile("time", duration(seconds), counted(told.workers, "process")),
        Tile("dropped", counted(dropped, "time") if dropped else "nobody", "clients out of a round"),
    ]


LEFT_OUT = {"input"}  # class names and normalisation, which figures and tables name


def about_section(told: RunTold) -> Section:
    plain = {name: value for name, value in told.experiment.plain().items() if name not in LEFT_OUT}
    parts: list[Facts | Table] = [
        Facts("Experiment", flat({**plain, "dataset": without_place(told.experiment.dataset)}), folded=True),
        _protocols(told),
        Facts("Environment", _environment(told)),
        Facts("What the numbers come from", _origin(told)),
    ]
    method = METHODS.get(told.experiment.method)  # one of the folder's own is not imported
    notes = (*(method.notes if method else ()), *told.experiment.compress.notes)
    if notes:
        rows = [[words(note)] for note in notes]
        parts.append(Table("Where the method departs from what its authors published", ("note",), rows))
    return Section("about", "What was run", parts)


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Dotted keys."""
    found: dict[str, object] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _listed(value) if isinstance(value, list | tuple) else shown(value)
    return found


def _listed(values: "list[object] | tuple[object, ...]") -> str:
    told = ", ".join(words(value) for value in values[:20])
    return f"{told}, … ({len(values)} in all)" if len(values) > 20 else told


def _protocols(told: RunTold) -> Table:
    found: dict[str, dict[str, float]] = {}
    for latest in told.evaluations[-1:]:
        shares = {name: {"accuracy": share} for name, share in latest["accuracy"].items() if share is not None}
        found = {name: share | latest.get("metrics", {}).get(name, {}) for name, share in shares.items()}
    metrics = [name for name in METRICS if name == "accuracy" or any(name in one for one in found.values())]
    rows = [
        [name, protocol.meaning, *(_shown(metric, found.get(name, {})) for metric in metrics)]
        for name, protocol in PROTOCOLS.items()
    ]
    note = "The last round is reported, never the best."
    every = f"Evaluated every {told.experiment.evaluate.every} rounds and after the last one."
    headings = ("protocol", "what it is", *(METRICS[name].title for name in metrics))
    return Table("Protocols", headings, rows, (note, every), left=2)


def _shown(metric: str, values: Mapping[str, float]) -> str:
    return METRICS[metric].show(values[metric]) if metric in values else "-"


def _environment(told: RunTold) -> dict[str, object]:
    if not told.starts:
        return {}
    last = told.starts[-1]
    machine = {words(name): shown(value) for name, value in last.get("machine", {}).items()}
    return {
        **machine,
        "device": shown(last.get("device", "-")),
        "workers": last.get("workers", "-"),
        "times begun": len(told.starts),
        "run id": shown(last.get("run", "-")),
    }


def _origin(told: RunTold) -> dict[str, object]:
    """As the manifest has it; a folder without one, or with a damaged one, tells less."""
    facts: dict[str, object] = {"experiment hash": told.experiment.hash}
    try:
        manifest = read_manifest(told.folder / CHECKPOINT)
    except RefProtoFLError:
        manifest = {}
    origin = manifest.get("origin") or {}
    facts["digest of the data"] = shown(origin.get("data")) or "not on record"
    facts["numerics"] = shown(origin.get("numerics", "unrecorded"))
    facts |= {f"code of {words(name)}": shown(digest) for name, digest in origin.get("code", {}).items()}
    partition = told.starts[-1].get("partition", {}) if told.starts else {}
    if "kind" in partition:
        redraws, moved = partition.get("redraws", 0), partition.get("moved", 0)
        facts["partition"] = f"{words(partition['kind'])}, {redraws} redraws, {moved} samples moved"
    if manifest:
        facts[f"state digest of round {manifest['progress']['round']}"] = manifest["state_digest"]
    return facts
