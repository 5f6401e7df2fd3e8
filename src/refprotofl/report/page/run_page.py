"""The page of one run, finished or not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from refprotofl.core.errors import RefProtoFLError
from refprotofl.core.network import Links
from refprotofl.core.units import counted, duration, percent, size
from refprotofl.report.page.about import about_section
from refprotofl.report.page.classes import class_figures
from refprotofl.report.page.clients import client_figures, dropped_tables
from refprotofl.report.page.curves import Stop, link_curve, progress_of, run_curves, stops_of
from refprotofl.report.page.elements import Figure, Page, Section, Table, Tile, words
from refprotofl.report.page.prototypes import prototype_figure
from refprotofl.report.page.sources import RunTold
from refprotofl.report.page.traffic import bytes_figure, levels_table, mask_figures, time_figure
from refprotofl.report.titles import title


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
