"""Figures of one run by round: bytes, sent coordinates, time."""

from collections.abc import Sequence

from refprotofl.core import duration, size
from refprotofl.report.page.checked_events import Masks
from refprotofl.report.page.curves import MOST_STOPS, ROUND, thinned, time_unit
from refprotofl.report.page.elements import Cell, Column, Figure, Table
from refprotofl.report.page.run_reader import RoundRecord, RunRecord

MOST_BARS = 60  # rounds; of longer runs every nth is drawn


def _some(rounds: Sequence[RoundRecord]) -> str:
    step = -(-len(rounds) // MOST_BARS)
    return f" Every {step}th round is drawn." if step > 1 else ""


def bytes_figure(rounds: Sequence[RoundRecord]) -> Figure:
    ways = {"up": "uplink", "down": "downlink", "one_off": "one-time setup"}
    rows: list[list[Cell]] = [
        [one.round, name, getattr(one, way)]
        for one in thinned(rounds, MOST_BARS)
        for way, name in ways.items()
        if getattr(one, way)
    ]
    return Figure(
        "bytes-by-round",
        "Bytes by round",
        f"Encoded messages of all clients, without evaluation.{_some(rounds)}",
        "stacked",
        (ROUND, Column("direction", "direction", "text"), Column("bytes", "bytes", "bytes")),
        rows,
        x="round",
        y="bytes",
        colour="direction",
    )


def levels_table(run: RunRecord) -> Table:
    """Return the traffic at three levels: parameters, encoded payload, bytes on the wire."""
    rows = []
    for direction, name in (("up", "uplink"), ("down", "downlink")):
        parameters = sum(one.parameters.get(direction, 0) for one in run.rounds)
        payload = sum(one.payload.get(direction, 0) for one in run.rounds)
        wire = "-" if run.crossed is None else size(run.crossed[direction])  # type: ignore[literal-required]
        rows.append([name, f"{parameters:,}", size(payload), wire])
    notes = ["Parameters: training messages. Payload: all encoded messages, with joining and evaluation."]
    if run.crossed is None:
        notes.append("Wire: not measured. In a deployment, refprotofl relay counts it between nodes and server.")
    else:
        notes.append(
            f"Wire: counted by a relay over {duration(run.crossed['seconds'])}, with TLS, HTTP, and Flower's own "
            "messages and polling."
        )
    return Table("Traffic by level", ("direction", "parameters", "payload", "wire"), rows, notes)


SHARE = Column("share", "share", "share")


def mask_figures(rounds: Sequence[RoundRecord]) -> list[Figure]:
    """Return the figures of masks; none if no masks are recorded."""
    recorded = thinned([(one.round, one.masks) for one in rounds if one.masks is not None], MOST_STOPS)
    if not recorded:
        return []
    return [*_part_figures(recorded), _overlap_figure(recorded), _ages(rounds, recorded)]


def _part_figures(recorded: Sequence[tuple[int, Masks]]) -> list[Figure]:
    shares: list[list[Cell]] = []
    densities: list[list[Cell]] = []
    for number, masks in recorded:
        sent = sum(part["sent"] for part in masks["parts"].values())
        for name, part in masks["parts"].items():
            shares.append([number, name, part["sent"] / sent if sent else None])
            most = part["size"] * masks["clients"]
            densities.append([number, name, part["sent"] / most if most else None])
    column = Column("part", "part of the model", "text")
    return [
        _share_lines(
            "mask-parts",
            "Sent coordinates by model part",
            "Share of all sent coordinates that are in each part of the adapter.",
            column,
            shares,
        ),
        _share_lines(
            "mask-density",
            "Share of each model part sent",
            "Share of a part's coordinates that a client sends, mean over clients.",
            column,
            densities,
        ),
    ]


def _overlap_figure(recorded: Sequence[tuple[int, Masks]]) -> Figure:
    rows: list[list[Cell]] = [
        [number, name, value]
        for number, masks in recorded
        for name, value in (("measured", masks["overlap"]), ("expected by chance", _chance(masks)))
        if value is not None
    ]
    caption = (
        "Share of a client's sent coordinates that another client also sends, mean over pairs, and the overlap "
        "expected of independent masks."
    )
    return _share_lines("mask-overlap", "Mask overlap between clients", caption, Column("masks", "masks", "text"), rows)


def _share_lines(name: str, title: str, caption: str, series: Column, rows: list[list[Cell]]) -> Figure:
    """Return shares by round, one line per value of the column `series`."""
    columns = (ROUND, series, SHARE)
    return Figure(name, title, caption, "lines", columns, rows, x="round", y="share", colour=series.name, zero=True)


def _chance(masks: Masks) -> float | None:
    sent = sum(part["sent"] for part in masks["parts"].values())
    size = sum(part["size"] for part in masks["parts"].values())
    return sent / (masks["clients"] * size) if masks["clients"] > 1 and size else None


def _ages(rounds: Sequence[RoundRecord], recorded: Sequence[tuple[int, Masks]]) -> Figure:
    rows: list[list[Cell]] = []
    since = 1
    for number, masks in thinned(recorded, MOST_BARS):
        since, parts = max(since, masks["since"]), list(masks["parts"].values())
        size = sum(part["size"] for part in parts) or 1
        for place, name in enumerate(_age_names(masks["ages"])):
            count = sum(part["unsent"][place] for part in parts if place < len(part["unsent"]))
            if count:
                rows.append([number, place, name, count / size])
        rows.append([number, len(masks["ages"]), "never", sum(part["never"] for part in parts) / size])
    counted = f" Counted since round {since}, when the run was resumed." if since > 1 else ""
    return Figure(
        "mask-ages",
        "Staleness of coordinates",
        f"Share of all coordinates by the number of rounds since any client last sent them.{counted}{_some(rounds)}",
        "stacked",
        (
            ROUND,
            Column("order", "order", "whole"),
            Column("age", "rounds since last sent", "text"),
            Column("share", "share of all coordinates", "share"),
        ),
        rows,
        x="round",
        y="share",
        colour="age",
        size="order",
    )


def _age_names(begins: Sequence[int]) -> list[str]:
    ends = [*begins[1:], None]
    return [
        str(begin) if end == begin + 1 else f"{begin}+" if end is None else f"{begin} to {end - 1}"
        for begin, end in zip(begins, ends, strict=True)
    ]


def time_figure(rounds: Sequence[RoundRecord]) -> Figure:
    """Return the seconds of each round by phase; the remainder is bookkeeping."""
    divisor, unit = time_unit(max((one.seconds for one in rounds), default=0.0))
    rows: list[list[Cell]] = []
    for one in thinned(rounds, MOST_BARS):
        rest = max(0.0, one.seconds - sum(one.spent.values()))
        names = {"server": "server", "evaluation": "evaluation"}
        for name, seconds in {**one.spent, "rest": rest}.items():
            shown = names.get(name, "digests and checkpoints" if name == "rest" else f"clients: {name}")
            if seconds:
                rows.append([one.round, shown, seconds / divisor])
    return Figure(
        "time-by-round",
        "Time per round",
        f"Wall-clock seconds by phase, on the machine that ran the server.{_some(rounds)}",
        "stacked",
        (ROUND, Column("part", "part of a round", "text"), Column("time", unit, "number")),
        rows if any(one.spent for one in rounds) else [],
        x="round",
        y="time",
        colour="part",
    )
