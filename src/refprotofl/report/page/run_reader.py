"""The incremental reader of a run folder: events line by line, also while the run is in progress.

The folder may come from anyone: lines are validated, memory is bounded, and symbolic links are not followed.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from refprotofl.core import DataError, InputError, Links
from refprotofl.experiment import Experiment
from refprotofl.records import (
    Crossed,
    Event,
    Summary,
    check_file,
    open_file,
    parse_json,
    read_crossed,
    read_experiment,
    read_summary,
)
from refprotofl.report.page.checked_events import Evaluation, Failure, Masks, Round, Start, read_event, round_seconds

MEGABYTE = 1_000_000
LONGEST_LINE = 64 * MEGABYTE  # a round of some 10,000 clients has about 10
_MOST = {"experiment.json": 64, "summary.json": 256, "checkpoint/manifest.json": 1024}  # megabytes


def check_sizes(folder: Path) -> None:
    """Raise DataError for a file that is larger than a run ever writes, before it is read."""
    for name, most in _MOST.items():
        path = folder / name
        if check_file(path) and path.lstat().st_size > most * MEGABYTE:
            raise DataError(f"{path} is larger than {most} MB, more than a run ever writes.")


MOST_FAILURES = 500  # in the list; all are counted
MOST_ROUNDS = 200_000


@dataclass
class RoundRecord:
    """The totals of a round, whose size does not depend on the number of clients."""

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
    over_links: dict[str, float]  # estimated seconds, by link


@dataclass
class RunRecord:
    """A run as its folder records it so far."""

    folder: Path
    experiment: Experiment
    starts: list[Start] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    absent: Counter[int] = field(default_factory=Counter)  # drops by client
    last_seen: dict[int, int] = field(default_factory=dict)  # by client: its last round with an answer
    discarded: int = 0
    ended: bool = False
    summary: Summary | None = None
    crossed: Crossed | None = None  # counted by a relay on the wire

    @property
    def rounds_done(self) -> int:
        return self.rounds[-1].round if self.rounds else 0

    @property
    def class_counts(self) -> list[list[int]] | None:
        """Samples of each client by class, if they are recorded."""
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
    """Reads a run folder from where it stopped last, into one `RunRecord` that grows.

    `links`: the links by name over which each round is timed.
    """

    def __init__(self, folder: Path, links: dict[str, Links] | None = None) -> None:
        self._links = links or {}
        self.folder = folder
        self._path = folder / "events.jsonl"
        self.run = self._begin()

    def _begin(self) -> RunRecord:
        check_sizes(self.folder)
        self.line = 0  # lines read
        self._place, self._file = 0, 0
        return RunRecord(self.folder, read_experiment(self.folder))

    def read(self) -> list[tuple[int, Event]]:
        """Return the new lines with their numbers; an incomplete last line is left for the next call.

        A file that was repaired or replaced is read again from line 1.
        """
        new = list(self._lines())
        if self.run.summary is None and self.run.ended and check_file(self.folder / "summary.json"):
            check_sizes(self.folder)
            self.run.summary = read_summary(self.folder / "summary.json")
        self.run.crossed = read_crossed(self.folder)
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
                self.run = self._begin()
            self._file = status.st_ino
            file.seek(self._place)
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n"):
                    if len(line) == LONGEST_LINE:
                        raise DataError(f"{self._path}: line {self.line + 1} is longer than any that a run writes.")
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
                f"{self._path}: line {self.line} is not a valid event. If the run was interrupted, "
                "--resume repairs the file."
            ) from None

    def _take(self, event: Event) -> None:
        run = self.run
        match event["event"]:
            case "start" | "resume":
                run.starts.append(event)  # type: ignore[arg-type]
                run.ended = False
            case "extend":
                run.experiment = read_experiment(self.folder)
            case "round" if len(run.rounds) < MOST_ROUNDS:
                self._take_round(event)  # type: ignore[arg-type]
            case "evaluation":
                _only_the_last_in_full(run.evaluations, event)  # type: ignore[arg-type]
            case "client-failed":
                self._take_failure(event)  # type: ignore[arg-type]
            case "round-discarded":
                run.discarded += 1
            case "end":
                run.ended = True

    def _take_round(self, event: Round) -> None:
        run, traffic = self.run, event.get("traffic", [])
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
            name: round_seconds(traffic, spent, links, run.workers, run.sizes()) for name, links in self._links.items()
        }
        run.last_seen.update(dict.fromkeys(participants, event["round"]))
        run.rounds.append(
            RoundRecord(
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
        run = self.run
        run.reasons[event.get("reason", "")[:200] if len(run.reasons) < MOST_FAILURES else "others"] += 1
        run.absent[event["client"]] += 1
        run.failures.append(event)
        del run.failures[:-MOST_FAILURES]


def _only_the_last_in_full(evaluations: list[Evaluation], event: Evaluation) -> None:
    """Keep per-client and per-class results of the latest evaluation only."""
    if evaluations:
        for name in ("per_client", "confusion"):
            evaluations[-1].pop(name, None)  # type: ignore[misc]
    evaluations.append(event)


def open_run(folder: Path, links: dict[str, Links] | None = None) -> RunReader:
    if not check_file(folder / "experiment.json"):
        raise InputError(f"{folder} is not a run folder: it has no experiment.json.")
    return RunReader(folder, links)


def read_run(folder: Path, links: dict[str, Links] | None = None) -> RunRecord:
    """Return a run as far as it has been recorded."""
    reader = open_run(folder, links)
    reader.read()
    return reader.run
