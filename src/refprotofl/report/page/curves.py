"""Accuracy and loss of a run by round, by bytes and by seconds over links; the progress of a live run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any, Literal, TypeVar

from refprotofl.report.page.elements import Cell, Column, Figure, words
from refprotofl.report.page.run_reader import RunRecord
from refprotofl.studies import Result

WAYS = {"up": "uplink", "down": "downlink", "both": "total"}

MOST_STOPS = 300  # points of a curve; longer ones are thinned

_One = TypeVar("_One")

ROUND = Column("round", "round", "whole")
ACCURACY = Column("accuracy", "accuracy", "share")
LOSS = Column("loss", "cross-entropy", "number")


@dataclass(frozen=True)
class Stop:
    """An evaluation with the bytes and seconds spent until then."""

    round: int
    accuracy: dict[str, float | None]
    loss: float | None
    bytes: dict[str, int]  # by direction, as in WAYS
    seconds: dict[str, float] = field(default_factory=dict)  # by link
    subset: int | None = None  # of the test samples, where not all were scored


def thinned(rounds: Sequence[_One], most: int) -> Sequence[_One]:
    """Return at most `most` evenly spaced entries, the last one among them."""
    if len(rounds) <= most:
        return rounds
    step = -(-len(rounds) // most)
    return rounds[(len(rounds) - 1) % step :: step]


def stops_of(run: RunRecord) -> list[Stop]:
    """Return the points of a run's curves; evaluations of uncommitted rounds are left out."""
    ups, downs, onces = (
        list(accumulate(getattr(one, name) for one in run.rounds)) for name in ("up", "down", "one_off")
    )
    until = {
        one.round: {"up": up, "down": down, "both": up + down + once}
        for one, up, down, once in zip(run.rounds, ups, downs, onces, strict=True)
    }
    clocks = {
        link: dict(
            zip((one.round for one in run.rounds), accumulate(one.over_links[link] for one in run.rounds), strict=True)
        )
        for link in (run.rounds[0].over_links if run.rounds else {})
    }
    return [
        Stop(
            round=one["round"],
            accuracy=one["accuracy"],
            loss=one.get("loss"),
            bytes=until[one["round"]],
            seconds={link: clock[one["round"]] for link, clock in clocks.items()},
            subset=one.get("subset"),
        )
        for one in thinned([one for one in run.evaluations if one["round"] in until], MOST_STOPS)
    ]


def stops_of_result(result: Result) -> list[Stop]:
    """Return the points of a stored result, which has total bytes only."""
    curve = thinned(result["curve"], MOST_STOPS)
    return [
        Stop(point["round"], point["accuracy"], None, {"both": point["bytes"]}, subset=point.get("subset"))
        for point in curve
    ]


def subset_note(stops: Iterable[Stop]) -> str:
    """Return a sentence on points that were not scored on the whole test set; nothing if all were."""
    sizes = sorted({stop.subset for stop in stops if stop.subset is not None})
    listed = " or ".join(f"{size:,}" for size in sizes)
    return f" Before the last round {listed} test samples are scored, class-balanced." if sizes else ""


def time_unit(most: float) -> tuple[float, str]:
    """Return a divisor for seconds and the unit that it gives."""
    for seconds, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if most >= 2 * seconds:
            return seconds, unit
    return 1.0, "seconds"


def run_curves(stops: Sequence[Stop], headline: str) -> list[Figure]:
    """Return a run's figures: all protocols by round, the headline protocol by bytes, and the loss by both."""
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
            f"Mean over clients, for each evaluation protocol.{subset_note(stops)}",
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
                "Cross-entropy of personal predictions, mean over clients.",
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
        f"{of[0].upper()}{of[1:]} against the cumulative bytes of all clients.",
        "lines",
        (ROUND, Column("direction", "direction", "text"), Column("bytes", "bytes of all clients", "bytes"), value),
        rows if any(stop.bytes.get("both") for stop in stops) else [],
        x="bytes",
        y=what,
        colour="direction",
    )


def link_curve(stops_by_name: Mapping[str, Sequence[Stop]], headline: str, link: str, called: str) -> Figure:
    """Return accuracy against the estimated time over a link, one curve per name."""
    most = max((stop.seconds.get(link, 0.0) for stops in stops_by_name.values() for stop in stops), default=0.0)
    divisor, unit = time_unit(most)
    rows: list[list[Cell]] = [
        [words(name), stop.round, stop.seconds[link] / divisor, stop.accuracy[headline]]
        for name, stops in stops_by_name.items()
        for stop in stops
        if link in stop.seconds and stop.accuracy.get(headline) is not None
    ]
    time = Column("time", f"{unit} over the link (estimated)", "number")
    return Figure(
        f"accuracy-over-{link}",
        f"Accuracy over link time: {called}",
        "Estimated. Each request waits for the slowest client: downlink, computation as measured here, uplink. "
        "Joining is included, evaluation is not.",
        "lines",
        (Column("run", "run", "text"), ROUND, time, ACCURACY),
        rows,
        x="time",
        y="accuracy",
        colour="run" if len(stops_by_name) > 1 else None,
    )


RECENT = 20  # rounds from which the remaining time is extrapolated
MOST_CLIENTS = 500  # in the live list


def progress_of(run: RunRecord) -> dict[str, Any]:
    experiment, done = run.experiment, run.rounds_done
    left = 0 if run.ended else max(0, experiment.rounds - done)
    pace = fmean(one.seconds for one in run.rounds[-RECENT:]) if run.rounds else None
    return {
        "rounds": experiment.rounds,
        "done": done,
        "ended": run.ended,
        "seconds_left": None if pace is None else pace * left,
        "budget": _budget(run),
        "clients": _clients(run),
    }


def _budget(run: RunRecord) -> dict[str, int] | None:
    """Return the uplink budget of a client and round, if there is one, and the most that was sent recently."""
    table = run.experiment.plain().get(run.experiment.method)
    allowed = table.get("uplink-budget") if isinstance(table, dict) else None
    if not isinstance(allowed, int) or isinstance(allowed, bool) or allowed <= 0:
        return None
    return {"allowed": allowed, "sent": max((one.most_up for one in run.rounds[-RECENT:]), default=0)}


def _clients(run: RunRecord) -> list[dict[str, Any]]:
    """Return each client's state in the latest round: participated, dropped or not sampled."""
    done = run.rounds_done
    gone = {one["client"] for one in run.failures if one.get("round") == done}
    states = []
    for number in range(min(run.experiment.clients, MOST_CLIENTS)):
        seen = run.last_seen.get(number)
        state = "dropped" if number in gone else "participated" if seen == done and done else "not sampled"
        states.append({"name": words(run.experiment.client_name(number))[:24], "state": state, "seen": seen})
    return states
