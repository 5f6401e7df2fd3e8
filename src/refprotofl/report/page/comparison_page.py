"""The report page of several runs: accuracy and cost of each method, paired by seed, and accuracy against bytes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean

from refprotofl.core import InputError, Links, counted, percent, size
from refprotofl.experiment import Experiment
from refprotofl.report.comparison import OverSeeds, against, headline, tabulate
from refprotofl.report.formats import accuracies, efforts, footnotes, legend, metric_values
from refprotofl.report.page.curves import ACCURACY, LOSS, ROUND, WAYS, Stop, link_curve, subset_note
from refprotofl.report.page.elements import Cell, Column, Figure, Page, Part, Section, Table, Tile, words
from refprotofl.report.statistics import estimate
from refprotofl.studies import Result, Trial

NEGLIGIBLE = 1e-4  # share of the most bytes below which a method has no place on their axis
WIDE = 20  # most bytes over least, from which their axis is logarithmic
NAME = Column("method", "method", "text")


@dataclass(frozen=True)
class Member:
    """One run among others."""

    name: str  # of its row
    block: str  # runs of one block differ in method and seed alone
    experiment: Experiment
    folder: Path
    stops: Sequence[Stop]
    rounds_done: int
    result: Result | None = None  # of a finished run
    trained: str = ""  # training settings that differ between rows and are not in their names


def comparison_page(
    members: Sequence[Member],
    title: str,
    links: Mapping[str, Links] | None = None,
    baseline: str | None = None,
    protocol: str | None = None,
) -> Page:
    """Return a page with sections of curves and tables for each block, by `protocol` or the headline protocol."""
    names = list(dict.fromkeys(one.name for one in members))
    if baseline is not None and baseline not in names:
        raise InputError(f"--against {baseline}: allowed are {', '.join(names)}.")
    sections = []
    for number, block in enumerate(dict.fromkeys(one.block for one in members)):
        own = [one for one in members if one.block == block]
        sections += [_numbered(number, one) for one in _block(block, own, links or {}, baseline, protocol)]
    sections = [_same_colours(one, names) for one in sections]
    members = list({one.folder: one for one in reversed(members)}.values())[::-1]  # one may be in several blocks
    done = sum(one.result is not None for one in members)
    sections.append(Section("runs", "Runs", [_runs(members)]))
    return Page(
        title=title,
        subtitle=f"{counted(len(members), 'run')}, {done} of them finished",
        tiles=_tiles(members),
        sections=sections,
        progress=None if done == len(members) else {"finished": done, "runs": len(members)},
    )


def _block(
    block: str, members: Sequence[Member], links: Mapping[str, Links], baseline: str | None, protocol: str | None
) -> list[Section]:
    rows = rows_of(members, baseline)
    protocol = protocol or (headline(rows) if rows else "personal")
    heading, short = (f"{block}: ", "") if block else ("", None)
    by_name: dict[str, list[Sequence[Stop]]] = {}
    for one in members:
        by_name.setdefault(one.name, []).append(one.stops)
    found = []
    if rows:
        trained = {one.name: one.trained for one in members if one.trained}
        parts: list[Part] = [*frontier_figure(rows, protocol), *_tables(rows, trained)]
        found.append(Section("methods", f"{heading}Method comparison", parts, block or None))
    figures = [
        _over_seeds(by_name, protocol, "round"),
        *(_over_seeds(by_name, protocol, way) for way in WAYS),
        _over_seeds(by_name, protocol, "loss"),
    ]
    listed = short if rows else block or None
    found.append(Section("learning", f"{heading}Accuracy and loss", [one for one in figures if one.rows], listed))
    if links:
        means = {name: _mean_stops(curves, protocol) for name, curves in by_name.items()}
        timed = [link_curve(means, protocol, link, one.text) for link, one in links.items()]
        found.append(Section("links", f"{heading}Time over real links", [one for one in timed if one.rows], short))
    return [one for one in found if one.parts]


def _numbered(block: int, section: Section) -> Section:
    """Return the section with names that are unique in the page."""
    end = f"-{block}" if block else ""
    parts = [replace(one, name=f"{one.name}{end}") if isinstance(one, Figure) else one for one in section.parts]
    return replace(section, name=f"{section.name}{end}", parts=parts)


def _same_colours(section: Section, names: Iterable[str]) -> Section:
    series = tuple(map(words, names))
    parts = [replace(one, series=series) if isinstance(one, Figure) else one for one in section.parts]
    return replace(section, parts=parts)


def rows_of(members: Sequence[Member], baseline: str | None) -> list[OverSeeds]:
    """Return the rows of the table with their paired differences, for finished runs."""
    done = [(Trial(one.name, one.experiment, one.folder), one.result) for one in members if one.result is not None]
    rows = tabulate(done) if done else []
    names = [row.name for row in rows]
    first = next((name for name in names if name.partition(":")[0] == "refprotofl"), names[0]) if names else ""
    return against(rows, baseline if baseline in names and baseline else first) if len(rows) > 1 else rows


def _tables(rows: Sequence[OverSeeds], trained: Mapping[str, str]) -> list[Table]:
    found = []
    parts = (("Accuracy", accuracies(rows)), ("Metrics", metric_values(rows)), ("Cost", efforts(rows)))
    for name, (headings, lines) in parts:
        if not headings:
            continue
        shown = [[words(row.name), *line] for row, line in zip(rows, lines, strict=True)]
        left = 2 if "shares" in headings else 1
        notes = [words(note) for note in legend(rows)] if name == "Accuracy" else []
        found.append(Table(name, ("method", *headings), shown, notes, left=left))
    if trained:
        settings = [[words(name), words(how)] for name, how in trained.items()]
        found.append(Table("Training settings", ("method", "own settings"), settings, left=2))
    method_notes = [[words(note)] for note in footnotes(rows)]
    return [*found, *([Table("Method notes", ("note",), method_notes)] if method_notes else [])]


def frontier_figure(rows: Sequence[OverSeeds], protocol: str) -> list[Figure]:
    """Return accuracy against bytes; methods without traffic have no place on a logarithmic axis, only a level."""
    known = [row for row in rows if protocol in row.accuracy]
    most = max((row.bytes["total"] for row in known), default=0.0)
    placed = [row for row in known if row.bytes["total"] > NEGLIGIBLE * most]
    if len(placed) < 2:
        return []
    lines: list[list[Cell]] = []
    best = max((row.accuracy[protocol].mean for row in known if row not in placed), default=-1.0)  # they send less
    for row in sorted(placed, key=lambda row: (row.bytes["total"], -row.accuracy[protocol].mean)):
        found = row.accuracy[protocol]
        half, front = found.half_width or 0.0, found.mean > best
        best = max(best, found.mean)
        ends = [max(0.0, found.mean - half), min(1.0, found.mean + half)]
        lines.append([words(row.name), row.bytes["total"], found.mean, *ends, "yes" if front else "no"])
    apart = [row for row in known if row not in placed]
    named = ", ".join(f"{words(row.name)} ({percent(row.accuracy[protocol].mean)})" for row in apart)
    levels = f" Dotted: almost no traffic, so no place on the axis: {named}." if apart else ""
    columns = (
        NAME,
        Column("bytes", "total bytes of all clients", "bytes"),
        Column("accuracy", f"{protocol} accuracy", "share"),
        Column("low", "95 % interval, lower end", "share"),
        Column("high", "95 % interval, upper end", "share"),
        Column("front", "Pareto-optimal", "text"),
    )
    caption = f"The dashed line is the Pareto front.{levels}"
    return [
        Figure(
            "frontier",
            "Accuracy against bytes",
            caption,
            "frontier",
            columns,
            lines,
            x="bytes",
            y="accuracy",
            band=("low", "high"),
            label="method",
            log=True,
            levels=tuple((words(row.name), row.accuracy[protocol].mean) for row in apart),
        )
    ]


def _over_seeds(by_name: Mapping[str, Sequence[Sequence[Stop]]], protocol: str, by: str) -> Figure:
    """Return means over seeds with 95 % intervals, at rounds that are evaluated for all seeds."""
    of_loss = by == "loss"
    value = LOSS if of_loss else replace(ACCURACY, title=f"{protocol} accuracy")
    rows: list[list[Cell]] = []
    for name, curves in by_name.items():
        for stops in _at_common_rounds(curves):
            values = [stop.loss if of_loss else stop.accuracy.get(protocol) for stop in stops]
            known = [one for one in values if one is not None]
            if len(known) < len(values) or (by in WAYS and any(by not in stop.bytes for stop in stops)):
                continue
            found = estimate(known)
            half = found.half_width or 0.0
            place: list[Cell] = [stops[0].round]
            if by in WAYS:
                place.append(fmean(stop.bytes[by] for stop in stops))
            most = math.inf if of_loss else 1.0
            ends = (max(0.0, found.mean - half), min(most, found.mean + half))
            rows.append([words(name), *place, found.mean, *ends])
    spread = [row[2] for row in rows if by in WAYS and isinstance(row[2], float) and row[2] > 0]
    wide = bool(spread) and max(spread) > WIDE * min(spread)
    if by in WAYS:  # a method without traffic does not fit an axis of bytes
        rows = [row for row in rows if row[2] and (not wide or float(row[2]) > NEGLIGIBLE * max(spread))]
    moved = Column("bytes", f"{WAYS[by]} bytes of all clients", "bytes") if by in WAYS else None
    limits = (
        replace(value, name="low", title="95 % interval, lower end"),
        replace(value, name="high", title="95 % interval, upper end"),
    )
    title = {"round": "Accuracy by round", "loss": "Loss by round"}.get(by) or f"Accuracy by {WAYS[by]} bytes"
    return Figure(
        f"{'loss' if of_loss else 'accuracy'}-by-{'round' if of_loss else by}",
        title,
        f"Mean over seeds with 95 % confidence intervals.{subset_note(chain(*chain(*by_name.values())))}",
        "lines",
        (NAME, ROUND, *([moved] if moved else []), value, *limits),
        rows,
        x="bytes" if moved else "round",
        y=value.name,
        colour="method",
        band=("low", "high"),
        log=wide,
    )


def _at_common_rounds(curves: Sequence[Sequence[Stop]]) -> list[list[Stop]]:
    by_round = [{stop.round: stop for stop in stops} for stops in curves if stops]
    if not by_round:
        return []
    common = sorted(set.intersection(*(set(one) for one in by_round)))
    return [[one[round] for one in by_round] for round in common]


def _mean_stops(curves: Sequence[Sequence[Stop]], protocol: str) -> list[Stop]:
    """Return one curve over seeds: mean accuracy at mean seconds."""
    found = []
    for stops in _at_common_rounds(curves):
        known = [share for stop in stops if (share := stop.accuracy.get(protocol)) is not None]
        links = set.intersection(*(set(stop.seconds) for stop in stops))
        seconds = {link: fmean(stop.seconds[link] for stop in stops) for link in links}
        if len(known) == len(stops):
            found.append(Stop(stops[0].round, {protocol: fmean(known)}, None, {}, seconds))
    return found


def _runs(members: Sequence[Member]) -> Table:
    rows = [
        [
            words(one.block) or "-",
            words(one.name),
            str(one.experiment.seed),
            f"{one.rounds_done} of {one.experiment.rounds}",
            _last(one),
            words(one.folder.name),
        ]
        for one in members
    ]
    return Table("All runs", ("setting", "method", "seed", "rounds", "personal", "folder"), rows, left=6)


def _last(member: Member) -> str:
    return percent(member.stops[-1].accuracy.get("personal")) if member.stops else "-"


def _tiles(members: Sequence[Member]) -> list[Tile]:
    names, seeds = {one.name for one in members}, {one.experiment.seed for one in members}
    sent = sum(stop.bytes.get("both", 0) for one in members for stop in one.stops[-1:])
    return [
        Tile("methods", str(len(names)), counted(len({one.block for one in members}), "setting")),
        Tile("seeds", str(len(seeds)), ""),
        Tile("runs", str(len(members)), f"{sum(one.result is not None for one in members)} finished"),
        Tile("traffic", size(sent), "total of all runs"),
    ]
