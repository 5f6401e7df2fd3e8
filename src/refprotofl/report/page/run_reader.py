"""How much of a folder that somebody sent is read: enough for any run of ours, and no more.

What a run tells: its folder read line by line, as far as it goes, again and again while the run goes on.

The folder may be a stranger's: lines are checked before anything is made of them, what is kept of them is bounded, and
nothing is followed elsewhere.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from refprotofl.core.errors import DataError, InputError
from refprotofl.core.network import Links
from refprotofl.experiment import Experiment
from refprotofl.records.events import Event
from refprotofl.records.folder import read_experiment
from refprotofl.records.relay_traffic import Crossed, read_crossed
from refprotofl.records.safe_io import check_file, open_file, parse_json
from refprotofl.records.summary import Summary, read_summary
from refprotofl.report.page.checked_events import Evaluation, Failure, Masks, Round, Start, read_event, round_seconds

MEGABYTE = 1_000_000
LONGEST_LINE = 64 * MEGABYTE  # a round of some 10,000 clients has about 10
_MOST = {"experiment.json": 64, "summary.json": 256, "checkpoint/manifest.json": 1024}  # megabytes


def check_sizes(folder: Path) -> None:
    """DataError where a file is larger than any of ours, before it is read."""
    for name, most in _MOST.items():
        path = folder / name
        if check_file(path) and path.lstat().st_size > most * MEGABYTE:
            raise DataError(f"{path} is larger than {most} MB: it is none of ours.")


MOST_FAILURES = 500  # that are listed; all are counted
MOST_ROUNDS = 200_000


@dataclass
class RoundTold:
    """What is kept of a round: numbers that do not grow with the clients."""

    round: int
    up: int
    down: int
    most_up: int  # of any client
    one_off: int
    parameters: dict[str, int]  # by direction, as training sent them
    payload: dict[str, int]  # by direction, evaluation and joining too
    seconds: float
    spent: dict[str, float]
    asked: int
    took_part: int
    masks: Masks | None
    over_links: dict[str, float]  # seconds over each link that was asked for


@dataclass
class RunTold:
    """A run as its folder tells it so far."""

    folder: Path
    experiment: Experiment
    starts: list[Start] = field(default_factory=list)
    rounds: list[RoundTold] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    absent: Counter[int] = field(default_factory=Counter)  # how often each client was dropped
    last_seen: dict[int, int] = field(default_factory=dict)  # the round in which each client took part last
    discarded: int = 0
    ended: bool = False
    summary: Summary | None = None
    crossed: Crossed | None = None  # what a relay counted on the wire

    @property
    def rounds_done(self) -> int:
        return self.rounds[-1].round if self.rounds else 0

    @property
    def class_counts(self) -> list[list[int]] | None:
        """Samples of each client by class, where they are on record."""
        counts = next((one.get("partition", {}).get("class_counts") for one in reversed(self.starts)), None)
        classes, clients = self.experiment.known_input.num_classes, self.experiment.clients
        fits = counts is not None and len(counts) == clients and all(len(row) == classes for row in counts)
        return counts if fits else None

    @property
    def workers(self) -> int:
        return self.starts[-1].get("workers", 1) if self.starts else 1

    def sizes(self) -> list[int] | None:
        """Samples of each client."""
        counts = self.class_counts
        return None if counts is None else [sum(row) for row in counts]


class RunReader:
    """Reads on where it stopped. What it gives is one object, which grows.

    `links`: what each round's traffic is timed over, by name.
    """

    def __init__(self, folder: Path, links: dict[str, Links] | None = None) -> None:
        self._links = links or {}
        self.folder = folder
        self._path = folder / "events.jsonl"
        self.told = self._begin()

    def _begin(self) -> RunTold:
        check_sizes(self.folder)
        self.line = 0  # how many lines are read
        self._place, self._file = 0, 0
        return RunTold(self.folder, read_experiment(self.folder))

    def read(self) -> list[tuple[int, Event]]:
        """The lines that are new, with their numbers; a last line that is not whole yet waits.

        A file that was mended or replaced is read anew: its first line is number 1 again.
        """
        new = list(self._lines())
        if self.told.summary is None and self.told.ended and check_file(self.folder / "summary.json"):
            check_sizes(self.folder)
            self.told.summary = read_summary(self.folder / "summary.json")
        self.told.crossed = read_crossed(self.folder)
        return new

    def _lines(self) -> Iterator[tuple[int, Event]]:
        try:
            file = open_file(self._path)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise DataError(f"{self._path} cannot be read: {problem.strerror}.") from None
        with file:
            status = os.fstat(file.fileno())
            if self._file not in (0, status.st_ino) or status.st_size < self._place:
                self.told = self._begin()
            self._file = status.st_ino
            file.seek(self._place)
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n"):
                    if len(line) == LONGEST_LINE:
                        raise DataError(f"{self._path}: line {self.line + 1} is longer than any of ours.")
                    return
                self._place += len(line)
                self.line += 1
                event = self._parse(line)
                self._take(event)
                yield self.line, event

    def _parse(self, line: bytes) -> Event:
        try:
            return read_event(parse_json(line))
        except ValueError:
            raise DataError(
                f"{self._path}: line {self.line} is no event of ours; a run that was cut off is mended by --resume."
            ) from None

    def _take(self, event: Event) -> None:
        told = self.told
        match event["event"]:
            case "start" | "resume":
                told.starts.append(event)  # type: ignore[arg-type]
                told.ended = False
            case "extend":
                told.experiment = read_experiment(self.folder)
            case "round" if len(told.rounds) < MOST_ROUNDS:
                self._take_round(event)  # type: ignore[arg-type]
            case "evaluation":
                _only_the_last_in_full(told.evaluations, event)  # type: ignore[arg-type]
            case "client-failed":
                self._take_failure(event)  # type: ignore[arg-type]
            case "round-discarded":
                told.discarded += 1
            case "end":
                told.ended = True

    def _take_round(self, event: Round) -> None:
        told, traffic = self.told, event.get("traffic", [])
        sent, by_client = Counter[tuple[str, str]](), Counter[int]()
        parameters, payload = Counter[str](), Counter[str]()
        for row in traffic:
            sent[row["purpose"], row["direction"]] += row["payload_bytes"]
            payload[row["direction"]] += row["payload_bytes"]
            if row["purpose"] == "training":
                parameters[row["direction"]] += row.get("parameters", 0)
            if row["purpose"] == "training" and row["direction"] == "up":
                by_client[row["client"]] += row["payload_bytes"]
        spent, participants = event.get("spent", {}), event.get("participants", [])
        timed = {
            name: round_seconds(traffic, spent, links, told.workers, told.sizes())
            for name, links in self._links.items()
        }
        told.last_seen.update(dict.fromkeys(participants, event["round"]))
        told.rounds.append(
            RoundTold(
                round=event["round"],
                up=sent["training", "up"],
                down=sent["training", "down"],
                most_up=max(by_client.values(), default=0),
                one_off=sent["one_off", "up"] + sent["one_off", "down"],
                parameters=dict(parameters),
                payload=dict(payload),
                seconds=event.get("seconds", 0.0),
                spent=spent,
                asked=len(event.get("asked", participants)),
                took_part=len(participants),
                masks=event.get("masks"),
                over_links=timed,
            )
        )

    def _take_failure(self, event: Failure) -> None:
        told = self.told
        told.reasons[event.get("reason", "")[:200] if len(told.reasons) < MOST_FAILURES else "others"] += 1
        told.absent[event["client"]] += 1
        told.failures.append(event)
        del told.failures[:-MOST_FAILURES]


def _only_the_last_in_full(evaluations: list[Evaluation], event: Evaluation) -> None:
    """What grows with clients and classes is kept of the latest alone."""
    if evaluations:
        for name in ("per_client", "confusion"):
            evaluations[-1].pop(name, None)  # type: ignore[misc]
    evaluations.append(event)


def open_run(folder: Path, links: dict[str, Links] | None = None) -> RunReader:
    if not check_file(folder / "experiment.json"):
        raise InputError(f"{folder} is not a run folder: it has no experiment.json.")
    return RunReader(folder, links)


def read_run(folder: Path, links: dict[str, Links] | None = None) -> RunTold:
    """A run as far as it has come."""
    reader = open_run(folder, links)
    reader.read()
    return reader.told
