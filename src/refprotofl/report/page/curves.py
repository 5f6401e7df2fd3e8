"""Accuracy and loss along a run: by round, by bytes and by seconds over links.

How far a run that is watched has come, and when it will be done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any, Literal, TypeVar

from refprotofl.report.page.elements import Cell, Column, Figure, words
from refprotofl.report.page.run_reader import RunTold
from refprotofl.studies.results import Result

WAYS = {"up": "sent up", "down": "sent down", "both": "both ways and once"}

MOST_STOPS = 300  # points of a curve; of more, some are drawn

_One = TypeVar("_One")

ROUND = Column("round", "round", "whole")
ACCURACY = Column("accuracy", "accuracy", "share")
LOSS = Column("loss", "cross-entropy", "number")


@dataclass(frozen=True)
class Stop:
    """An evaluation, and what it had taken until then."""

    round: int
    accuracy: dict[str, float | None]
    loss: float | None
    bytes: dict[str, int]  # by way
    seconds: dict[str, float] = field(default_factory=dict)  # by link


def thinned(rounds: Sequence[_One], most: int) -> Sequence[_One]:
    """Evenly, the last one always."""
    if len(rounds) <= most:
        return rounds
    step = -(-len(rounds) // most)
    return rounds[(len(rounds) - 1) % step :: step]


def stops_of(told: RunTold) -> list[Stop]:
    """Of a run; an evaluation of a round that is not committed yet is left out."""
    ups, downs, onces = (
        list(accumulate(getattr(one, name) for one in told.rounds)) for name in ("up", "down", "one_off")
    )
    until = {
        one.round: {"up": up, "down": down, "both": up + down + once}
        for one, up, down, once in zip(told.rounds, ups, downs, onces, strict=True)
    }
    clocks = {
        link: dict(
            zip(
                (one.round for one in told.rounds), accumulate(one.over_links[link] for one in told.rounds), strict=True
            )
        )
        for link in (told.rounds[0].over_links if told.rounds else {})
    }
    return [
        Stop(
            round=one["round"],
            accuracy=one["accuracy"],
            loss=one.get("loss"),
            bytes=until[one["round"]],
            seconds={link: clock[one["round"]] for link, clock in clocks.items()},
        )
        for one in thinned([one for one in told.evaluations if one["round"] in until], MOST_STOPS)
    ]


def stops_of_result(result: Result) -> list[Stop]:
    """Of a kept result, which tells the bytes of both ways alone."""
    curve = thinned(result["curve"], MOST_STOPS)
    return [Stop(point["round"], point["accuracy"], None, {"both": point["bytes"]}) for point in curve]


def time_unit(most: float) -> tuple[float, str]:
    """What seconds are divided by to be read, and the unit then."""
    for seconds, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if most >= 2 * seconds:
            return seconds, unit
    return 1.0, "seconds"


def run_curves(stops: Sequence[Stop], headline: str) -> list[Figure]:
    """Of one run: each of its protocols by round, the headline's by bytes, and the loss by both."""
    protocols = [name for name in (stops[-1].accuracy if stops else {}) if stops[-1].accuracy[name] is not None]
    by_round: list[list[Cell]] = [
        [stop.round, name, stop.accuracy.get(name)]
        for name in protocols
        for stop in stops
        if stop.accuracy.get(name) is not None
    ]
    found = [
        Figure(
            "accuracy-by-round",
            "Accuracy by round",
            "Mean over clients, each protocol on the data that it is about.",
            "lines",
            (ROUND, Column("protocol", "protocol", "text"), ACCURACY),
            by_round,
            x="round",
            y="accuracy",
            colour="protocol",
        ),
        _by_bytes(stops, "accuracy", headline),
    ]
    if any(stop.loss is not None for stop in stops):
        losses = [[stop.round, stop.loss] for stop in stops if stop.loss is not None]
        found += [
            Figure(
                "loss-by-round",
                "Loss by round",
                "Cross-entropy of personal predictions on the whole test set, mean over clients.",
                "lines",
                (ROUND, LOSS),
                losses,
                x="round",
                y="loss",
            ),
            _by_bytes(stops, "loss", headline),
        ]
    return [figure for figure in found if figure.rows]


def _by_bytes(stops: Sequence[Stop], what: Literal["accuracy", "loss"], headline: str) -> Figure:
    value = {"accuracy": ACCURACY, "loss": LOSS}[what]
    rows: list[list[Cell]] = []
    for way, name in WAYS.items():
        for stop in stops:
            reached = stop.accuracy.get(headline) if what == "accuracy" else stop.loss
            if reached is not None and way in stop.bytes:
                rows.append([stop.round, name, stop.bytes[way], reached])
    of = f"{headline} accuracy" if what == "accuracy" else "loss of personal predictions"
    return Figure(
        f"{what}-by-bytes",
        f"{what.capitalize()} by bytes",
        f"{of[0].upper()}{of[1:]} against the bytes of all clients until then.",
        "lines",
        (ROUND, Column("way", "bytes", "text"), Column("bytes", "bytes of all clients", "bytes"), value),
        rows if any(stop.bytes.get("both") for stop in stops) else [],
        x="bytes",
        y=what,
        colour="way",
    )


def link_curve(stops_by_name: Mapping[str, Sequence[Stop]], headline: str, link: str, called: str) -> Figure:
    """Accuracy over the seconds that it would take over a link; one curve a name."""
    most = max((stop.seconds.get(link, 0.0) for stops in stops_by_name.values() for stop in stops), default=0.0)
    divisor, unit = time_unit(most)
    rows: list[list[Cell]] = [
        [words(name), stop.round, stop.seconds[link] / divisor, stop.accuracy[headline]]
        for name, stops in stops_by_name.items()
        for stop in stops
        if link in stop.seconds and stop.accuracy.get(headline) is not None
    ]
    time = Column("time", f"{unit} over the link", "number")
    return Figure(
        f"accuracy-over-{link}",
        f"Accuracy over time: {called}",
        "Every request of a round waits for the slowest client: its bytes down, its computing as measured here, its "
        "bytes up. Joining counts, evaluation does not.",
        "lines",
        (Column("run", "run", "text"), ROUND, time, ACCURACY),
        rows,
        x="time",
        y="accuracy",
        colour="run" if len(stops_by_name) > 1 else None,
    )


RECENT = 20  # rounds that the rest is expected to be like
MOST_CLIENTS = 500  # whose state is shown


def progress_of(told: RunTold) -> dict[str, Any]:
    experiment, done = told.experiment, told.rounds_done
    left = 0 if told.ended else max(0, experiment.rounds - done)
    pace = fmean(one.seconds for one in told.rounds[-RECENT:]) if told.rounds else None
    return {
        "rounds": experiment.rounds,
        "done": done,
        "ended": told.ended,
        "seconds_left": None if pace is None else pace * left,
        "budget": _budget(told),
        "clients": _clients(told),
    }


def _budget(told: RunTold) -> dict[str, int] | None:
    """What a client may send in a round, where that is bounded, and the most that one sent in the last ones."""
    table = told.experiment.plain().get(told.experiment.method)
    allowed = table.get("uplink-budget") if isinstance(table, dict) else None
    if not isinstance(allowed, int) or isinstance(allowed, bool) or allowed <= 0:
        return None
    return {"allowed": allowed, "sent": max((one.most_up for one in told.rounds[-RECENT:]), default=0)}


def _clients(told: RunTold) -> list[dict[str, Any]]:
    """Each client's state: whether it took part in the latest round, was dropped from it, or was not asked."""
    done = told.rounds_done
    gone = {one["client"] for one in told.failures if one.get("round") == done}
    states = []
    for number in range(min(told.experiment.clients, MOST_CLIENTS)):
        seen = told.last_seen.get(number)
        state = "dropped" if number in gone else "took part" if seen == done and done else "waits"
        states.append({"name": words(told.experiment.client_name(number))[:24], "state": state, "seen": seen})
    return states
