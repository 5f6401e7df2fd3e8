"""What was sent, which coordinates, and where the time went: figures of one run by round."""

from collections.abc import Sequence

from refprotofl.core.units import duration, size
from refprotofl.report.page.checked_events import Masks
from refprotofl.report.page.curves import MOST_STOPS, ROUND, thinned, time_unit
from refprotofl.report.page.elements import Cell, Column, Figure, Table
from refprotofl.report.page.run_reader import RoundTold, RunTold

MOST_BARS = 60  # rounds that are drawn as bars; of more, some are drawn


def _some(rounds: Sequence[RoundTold]) -> str:
    step = -(-len(rounds) // MOST_BARS)
    return f" Every {step}th round is drawn." if step > 1 else ""


def bytes_figure(rounds: Sequence[RoundTold]) -> Figure:
    ways = {"up": "sent up", "down": "sent down", "one_off": "once, when clients join"}
    rows: list[list[Cell]] = [
        [one.round, name, getattr(one, way)]
        for one in thinned(rounds, MOST_BARS)
        for way, name in ways.items()
        if getattr(one, way)
    ]
    return Figure(
        "bytes-by-round",
        "Bytes by round",
        f"All clients' messages as they were encoded; what only serves evaluation is left out.{_some(rounds)}",
        "stacked",
        (ROUND, Column("way", "bytes", "text"), Column("bytes", "bytes", "bytes")),
        rows,
        x="round",
        y="bytes",
        colour="way",
    )


def levels_table(told: RunTold) -> Table:
    """The same traffic at three levels: what the method counts, what it encodes, what the network carries."""
    rows = []
    for direction, name in (("up", "sent up"), ("down", "sent down")):
        parameters = sum(one.parameters.get(direction, 0) for one in told.rounds)
        payload = sum(one.payload.get(direction, 0) for one in told.rounds)
        wire = "-" if told.crossed is None else size(told.crossed[direction])  # type: ignore[literal-required]
        rows.append([name, f"{parameters:,}", size(payload), wire])
    notes = ["Parameters: those of training. Payload: all messages as they were encoded, joining and evaluation too."]
    if told.crossed is None:
        notes.append("Wire: not counted; refprotofl relay does, between nodes and their server.")
    else:
        notes.append(
            f"Wire: what a relay saw cross in {duration(told.crossed['seconds'])}, with TLS, HTTP, Flower's "
            "own messages and its polling."
        )
    return Table("Three levels", ("way", "parameters", "payload", "wire"), rows, notes)


def mask_figures(rounds: Sequence[RoundTold]) -> list[Figure]:
    """Nothing where no masks are on record."""
    told = thinned([(one.round, one.masks) for one in rounds if one.masks is not None], MOST_STOPS)
    if not told:
        return []
    shares: list[list[Cell]] = []
    densities: list[list[Cell]] = []
    for number, masks in told:
        sent = sum(part["sent"] for part in masks["parts"].values())
        for name, part in masks["parts"].items():
            shares.append([number, name, part["sent"] / sent if sent else None])
            most = part["size"] * masks["clients"]
            densities.append([number, name, part["sent"] / most if most else None])
    part_column, share = Column("part", "part of the model", "text"), Column("share", "share", "share")
    overlaps: list[list[Cell]] = [
        [number, name, value]
        for number, masks in told
        for name, value in (("measured", masks["overlap"]), ("by chance", _chance(masks)))
        if value is not None
    ]
    return [
        Figure(
            "mask-parts",
            "Where the sent coordinates lie",
            "Of all coordinates that clients sent in a round, the share in each part of the adapter.",
            "lines",
            (ROUND, part_column, share),
            shares,
            x="round",
            y="share",
            colour="part",
            zero=True,
        ),
        Figure(
            "mask-density",
            "How much of each part was sent",
            "Of a part's coordinates, the share that a client sent, mean over clients.",
            "lines",
            (ROUND, part_column, share),
            densities,
            x="round",
            y="share",
            colour="part",
            zero=True,
        ),
        Figure(
            "mask-overlap",
            "Overlap between clients",
            "Of what a client sent, the share that another client sent too, mean over pairs; beside it, what masks "
            "that know nothing of each other would share.",
            "lines",
            (ROUND, Column("masks", "masks", "text"), share),
            overlaps,
            x="round",
            y="share",
            colour="masks",
            zero=True,
        ),
        _ages(rounds, told),
    ]


def _chance(masks: Masks) -> float | None:
    sent = sum(part["sent"] for part in masks["parts"].values())
    size = sum(part["size"] for part in masks["parts"].values())
    return sent / (masks["clients"] * size) if masks["clients"] > 1 and size else None


def _ages(rounds: Sequence[RoundTold], told: Sequence[tuple[int, Masks]]) -> Figure:
    rows: list[list[Cell]] = []
    since = 1
    for number, masks in thinned(told, MOST_BARS):
        since, parts = max(since, masks["since"]), list(masks["parts"].values())
        size = sum(part["size"] for part in parts) or 1
        for place, name in enumerate(_age_names(masks["ages"])):
            count = sum(part["unsent"][place] for part in parts if place < len(part["unsent"]))
            if count:
                rows.append([number, place, name, count / size])
        rows.append([number, len(masks["ages"]), "never", sum(part["never"] for part in parts) / size])
    counted = f" Counted since round {since}, when the run went on." if since > 1 else ""
    return Figure(
        "mask-ages",
        "How long coordinates go unsent",
        f"Shares of all coordinates by the rounds since any client sent them last.{counted}{_some(rounds)}",
        "stacked",
        (
            ROUND,
            Column("order", "order", "whole"),
            Column("age", "rounds since sent", "text"),
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


def time_figure(rounds: Sequence[RoundTold]) -> Figure:
    """Where a round's seconds went; what the parts do not account for is the run's bookkeeping."""
    divisor, unit = time_unit(max((one.seconds for one in rounds), default=0.0))
    rows: list[list[Cell]] = []
    for one in thinned(rounds, MOST_BARS):
        rest = max(0.0, one.seconds - sum(one.spent.values()))
        names = {"server": "server's own work", "evaluation": "evaluation"}
        for name, seconds in {**one.spent, "rest": rest}.items():
            shown = names.get(name, "digests and states" if name == "rest" else f"clients: {name}")
            if seconds:
                rows.append([one.round, shown, seconds / divisor])
    return Figure(
        "time-by-round",
        "Where the time went",
        f"Wall clock on the machine that ran it, by round.{_some(rounds)}",
        "stacked",
        (ROUND, Column("part", "part of a round", "text"), Column("time", unit, "number")),
        rows if any(one.spent for one in rounds) else [],
        x="round",
        y="time",
        colour="part",
    )
