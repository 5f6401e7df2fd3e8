"""What a link allows: bytes in all, bytes of a client's round, or seconds over a link; and what a run takes of it."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from refprotofl.core.network import Link
from refprotofl.core.units import size
from refprotofl.records.events import Event, read_events, read_traffic
from refprotofl.records.summary import Summary

SPARED = 0.01  # of a limit, for what joining takes and what messages say beside their code
JOINING = 32  # bytes of who is handed out nothing when it joins, at most


@dataclass(frozen=True)
class Sent:
    """What a run sends, up to its last round; of a run that was cut short, what it would."""

    rounds: int
    participations: float  # clients' rounds
    up: float  # bytes of all clients
    down: float
    once: float
    messages: float  # both ways, without those that come once
    joined: float  # clients that what comes once went to
    busiest: float  # bytes of a client's largest round, both ways, with what it is sent when it joins

    @property
    def total(self) -> float:
        return self.up + self.down + self.once

    def longer(self, rounds: int, like: "Sent | None" = None, joined: float = 0) -> "Sent":
        """With so many rounds: those to come are like that one, or like those that were run on average.

        `joined` clients will have joined by then, if more than so far.
        """
        like = like or self
        more = (rounds - self.rounds) / like.rounds
        newcomers = max(1.0, joined / self.joined) if self.joined else 1.0
        return Sent(
            rounds=rounds,
            participations=self.participations + like.participations * more,
            up=self.up + like.up * more,
            down=self.down + like.down * more,
            once=self.once * newcomers,
            messages=self.messages + like.messages * more,
            joined=self.joined * newcomers,
            busiest=self.busiest,
        )


def sent_by(summary: Summary, folder: Path) -> Sent:
    """Where the run's events are gone, its largest round is taken for a usual one in which a client joins."""
    told = summary["communication"]
    up, down, participations = told["uplink"], told["downlink"], summary["full_model"]["participations"]
    once, joined = told["one_off"]["payload_bytes"], told["one_off"]["messages"] / 2  # a request and its answer
    usual = (up["payload_bytes"] + down["payload_bytes"]) / max(participations, 1)
    every = (_sent_in(event) for event in _rounds_of(folder))
    return Sent(
        rounds=summary["rounds_done"],
        participations=participations,
        up=up["payload_bytes"],
        down=down["payload_bytes"],
        once=once,
        messages=up["messages"] + down["messages"],
        joined=joined,
        busiest=max((one.busiest for one in every), default=usual + once / max(joined, 1)),
    )


def sent_in(folder: Path, round: int) -> Sent | None:
    """What crossed in one round of a run; None where its events are not there."""
    return next((_sent_in(event) for event in _rounds_of(folder) if event["round"] == round), None)


def _rounds_of(folder: Path) -> Iterator[Event]:
    if (folder / "events.jsonl").exists():
        yield from (event for event in read_events(folder) if event["event"] == "round")


def _sent_in(event: Event) -> Sent:
    crossed = [row for row in read_traffic(event) if row["purpose"] != "evaluation"]
    by_client: Counter[int] = Counter()
    for row in crossed:
        by_client[row["client"]] += row["payload_bytes"]
    rows = [row for row in crossed if row["purpose"] == "training"]
    up, down = ([row for row in rows if row["direction"] == way] for way in ("up", "down"))
    return Sent(
        rounds=1,
        participations=len({row["client"] for row in rows}),
        up=sum(row["payload_bytes"] for row in up),
        down=sum(row["payload_bytes"] for row in down),
        once=0,
        messages=sum(row["messages"] for row in rows),
        joined=0,
        busiest=max(by_client.values(), default=0),
    )


class Limit(Protocol):
    @property
    def words(self) -> str: ...

    def share(self, sent: Sent) -> float:
        """What of the allowance is taken; above 1 is too much."""


@dataclass(frozen=True)
class Total:
    """Bytes of all clients, both ways and once."""

    bytes: int

    @property
    def words(self) -> str:
        return f"{size(self.bytes)} in all"

    def share(self, sent: Sent) -> float:
        return sent.total / self.bytes


@dataclass(frozen=True)
class EachRound:
    """Bytes of one client in any round, both ways, with what it is sent when it joins."""

    bytes: int

    @property
    def words(self) -> str:
        return f"{size(self.bytes)} a client and round"

    def share(self, sent: Sent) -> float:
        return sent.busiest / self.bytes


@dataclass(frozen=True)
class Deadline:
    """Seconds on the link of a client that takes part in every round; what it computes meanwhile is not in them."""

    link: Link
    name: str
    seconds: float

    @property
    def words(self) -> str:
        return f"{self.seconds:g} s on {self.name}"

    def share(self, sent: Sent) -> float:
        each = max(sent.participations, 1)
        a_round = 8 * (sent.up / self.link.up + sent.down / self.link.down) / each
        waiting = self.link.latency * sent.messages / each
        once = 8 * sent.once / max(sent.joined, 1) / self.link.down
        return ((a_round + waiting) * sent.rounds + once) / self.seconds


def message_within(limit: Limit, rounds: int, participants: int, closing: int, free: bool, late: bool = False) -> int:
    """The bytes that each message may have: one up and one down in each round, and one to who closes.

    `free`: the first round has none down. `late`: some clients join later, in rounds that do.
    """
    up = rounds * participants
    down = up - free * participants + closing

    def share(length: int) -> float:
        messages, busiest = 2 * (up + closing), (3 if closing else 2) * length + (0 if free and not late else JOINING)
        return limit.share(Sent(rounds, up, up * length, down * length, 0, messages, participants, busiest))

    none, each = share(0), share(1) - share(0)
    if each <= 0 or not math.isfinite(none):
        return 1  # a link beside whose waiting no byte counts
    return max(1, math.floor((1 - SPARED - none) / each))
