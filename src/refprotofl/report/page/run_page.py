"""The report page of one run, finished or in progress."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refprotofl.core import Links, RefProtoFLError, counted, duration, percent, size
from refprotofl.evaluation import METRICS, PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.methods import METHODS, built_in_compressor
from refprotofl.records import read_manifest
from refprotofl.records.safe_io import CHECKPOINT
from refprotofl.report.costs import shared_by
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
from refprotofl.report.page.run_reader import RunRecord
from refprotofl.report.page.traffic import bytes_figure, levels_table, mask_figures, time_figure


def run_page(
    run: RunRecord, links: Mapping[str, Links] | None = None, data: Path | None = None, live: bool = False
) -> Page:
    """Return a run's page. `live` leaves out figures that need the checkpoint or the data."""
    stops = stops_of(run)
    headline = headline_of(stops)
    anchors, note = (None, "") if live else _anchors(run, data)
    sections = [
        Section("learning", "Accuracy and loss", run_curves(stops, headline)),
        _over_links(stops, headline, links or {}),
        Section("clients", "Clients", [*client_figures(run), *dropped_tables(run)]),
        Section("classes", "Classes", [*class_figures(run), *([anchors] if anchors else [])]),
        Section("sent", "Communication", _sent(run)),
        Section("time", "Time", [time_figure(run.rounds)]),
        about_section(run),
    ]
    return Page(
        title=title(run.experiment, mailed=True),
        subtitle=words(run.folder.absolute().name),
        tiles=_tiles(run, stops, headline),
        sections=[with_rows(section) for section in sections if with_rows(section).parts],
        notes=[note] if note else [],
        progress=progress_of(run) if live else None,
    )


def with_rows(section: Section) -> Section:
    """Return the section without empty figures."""
    kept = [part for part in section.parts if not isinstance(part, Figure) or part.rows]
    return replace(section, parts=kept)


def _sent(run: RunRecord) -> list[Figure | Table]:
    return [bytes_figure(run.rounds), levels_table(run), *mask_figures(run.rounds)] if run.rounds else []


def headline_of(stops: Sequence[Stop]) -> str:
    latest = stops[-1].accuracy if stops else {}
    return "personal" if latest.get("personal") is not None or latest.get("global") is None else "global"


def _anchors(run: RunRecord, data: Path | None) -> tuple[Figure | None, str]:
    if not run.rounds:
        return None, ""
    try:
        return prototype_figure(run.folder, data)
    except (RefProtoFLError, OSError) as problem:
        return None, f"The anchors are not drawn: {words(problem)}"


def _over_links(stops: Sequence[Stop], headline: str, links: Mapping[str, Links]) -> Section:
    figures = [link_curve({"": stops}, headline, name, one.text) for name, one in links.items()]
    return Section("links", "Accuracy over link time", figures)


def _tiles(run: RunRecord, stops: Sequence[Stop], headline: str) -> list[Tile]:
    up, down = sum(one.up for one in run.rounds), sum(one.down for one in run.rounds)
    once = sum(one.one_off for one in run.rounds)
    reached = stops[-1].accuracy.get(headline) if stops else None
    seconds = run.summary["seconds"]["total"] if run.summary else sum(one.seconds for one in run.rounds)
    dropped = sum(run.absent.values())
    return [
        Tile(f"{headline} accuracy", percent(reached), f"after round {stops[-1].round}" if stops else ""),
        *_shared_tile(run.experiment),
        Tile("uplink", size(up), "all clients and rounds"),
        Tile("downlink", size(down), f"plus {size(once)} one-time setup" if once else ""),
        Tile("rounds", f"{run.rounds_done:,}", f"of {run.experiment.rounds:,}"),
        Tile("time", duration(seconds), counted(run.workers, "process")),
        Tile("dropped clients", f"{dropped:,}", "over all rounds"),
    ]


def _shared_tile(experiment: Experiment) -> list[Tile]:
    """Return the tile of what clients share; none for the user's own code, which is not imported."""
    if experiment.method not in METHODS:
        return []
    return [Tile("clients share", shared_by(experiment).removeprefix("the "), f"method {experiment.method}")]


LEFT_OUT = {"input"}  # class names and statistics, summed up in `_input`


def about_section(run: RunRecord) -> Section:
    plain = {name: value for name, value in run.experiment.plain().items() if name not in LEFT_OUT}
    parts: list[Facts | Table] = [
        Facts("Experiment", flat({**plain, "dataset": without_place(run.experiment.dataset)}), folded=True),
        Facts("Input", _input(run.experiment)),
        _protocols(run),
        Facts("Environment", _environment(run)),
        Facts("Provenance", _origin(run)),
    ]
    # The user's own code, which a received folder may name, is not imported.
    built_in = METHODS.get(run.experiment.method), built_in_compressor(run.experiment)
    notes = [note for one in built_in if one is not None for note in one.notes]
    if notes:
        rows = [[words(note)] for note in notes]
        parts.append(Table("Method notes", ("note",), rows))
    return Section("about", "Configuration", parts)


def _input(experiment: Experiment) -> dict[str, object]:
    """Return what a sample is, and the source of what it is normalised with."""
    if experiment.input is None:
        return {}
    seen = experiment.input
    kind, rule = seen.input_kind, seen.normalisation or "data set"
    found: dict[str, object] = {"kind": seen.kind, "size": kind.describe(seen.shape), "type": seen.dtype}
    if seen.vocabulary:
        return found | {"vocabulary": f"{counted(len(seen.vocabulary), 'entry')}, from the {rule}"}
    return found | {"mean and deviation": f"of {counted(len(seen.mean), 'feature')}, from the {rule}"}


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Return nested keys as dotted ones, with values as they are displayed."""
    found: dict[str, object] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _listed(value) if isinstance(value, list | tuple) else shown(value)
    return found


def _listed(values: "list[object] | tuple[object, ...]") -> str:
    listed = ", ".join(words(value) for value in values[:20])
    return f"{listed}, … ({len(values)} in total)" if len(values) > 20 else listed


def _protocols(run: RunRecord) -> Table:
    found: dict[str, dict[str, float]] = {}
    for latest in run.evaluations[-1:]:
        shares = {name: {"accuracy": share} for name, share in latest["accuracy"].items() if share is not None}
        found = {name: share | latest.get("metrics", {}).get(name, {}) for name, share in shares.items()}
    held_out = run.experiment.validation
    metrics = [name for name in METRICS if name == "accuracy" or any(name in one for one in found.values())]
    rows = [
        [name, protocol.definition(held_out), *(_shown(metric, found.get(name, {})) for metric in metrics)]
        for name, protocol in PROTOCOLS.items()
    ]
    note = "The last round is reported, not the best one."
    every = f"Evaluated after {counted(len(run.evaluations), 'round')}, the last one included."
    headings = ("protocol", "definition", *(METRICS[name].title for name in metrics))
    return Table("Evaluation protocols", headings, rows, (note, every), left=2)


def _shown(metric: str, values: Mapping[str, float]) -> str:
    return METRICS[metric].show(values[metric]) if metric in values else "-"


def _environment(run: RunRecord) -> dict[str, object]:
    if not run.starts:
        return {}
    last = run.starts[-1]
    machine = {words(name): shown(value) for name, value in last.get("machine", {}).items()}
    return {
        **machine,
        "device": shown(last.get("device", "-")),
        "workers": last.get("workers", "-"),
        "starts": len(run.starts),
        "run id": shown(last.get("run", "-")),
    }


def _origin(run: RunRecord) -> dict[str, object]:
    """Return the provenance that the manifest records; less if the folder has none, or a damaged one."""
    facts: dict[str, object] = {"experiment hash": run.experiment.hash}
    try:
        manifest = read_manifest(run.folder / CHECKPOINT)
    except RefProtoFLError:
        manifest = {}
    origin = manifest.get("origin") or {}
    facts["data digest"] = shown(origin.get("data")) or "not recorded"
    facts["numerics"] = shown(origin.get("numerics", "not recorded"))
    facts |= {f"code digest of {words(name)}": shown(digest) for name, digest in origin.get("code", {}).items()}
    partition = run.starts[-1].get("partition", {}) if run.starts else {}
    if "kind" in partition:
        redraws, moved = partition.get("redraws", 0), partition.get("moved", 0)
        facts["partition"] = f"{words(partition['kind'])}, {redraws} redraws, {moved} samples moved"
    if manifest:
        facts[f"state digest of round {manifest['progress']['round']}"] = manifest["state_digest"]
    return facts
