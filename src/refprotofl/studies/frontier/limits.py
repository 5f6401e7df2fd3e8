"""Limits of a run's traffic: total bytes, bytes of a client's round, or seconds on a link; and the traffic of a run."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from refprotofl.core import InputError, Link, read_link, read_whole, size
from refprotofl.experiment import Bytes
from refprotofl.records import Event, Summary, read_events, read_traffic
from refprotofl.wire import encode

SPARED = 0.01  # share of a limit, for joining and the headers of messages
JOINING = 32  # most bytes of joining without a join payload


@dataclass(frozen=True)
class Sent:
    """The traffic of a run, or the projected traffic of a longer one."""

    rounds: int
    participations: float  # sum over rounds of the clients that took part
    up: float  # bytes of all clients
    down: float
    once: float  # one-time traffic
    messages: float  # both ways, without one-time traffic
    joined: float  # clients that had one-time traffic
    busiest: float  # bytes of a client's largest round, both ways, with joining

    @property
    def total(self) -> float:
        return self.up + self.down + self.once

    def longer(self, rounds: int, like: "Sent | None" = None, joined: float = 0) -> "Sent":
        """Project to `rounds` rounds: further ones are like `like`, or like the average so far.

        `joined` clients will have joined by then, if these are more than so far.
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
    """Return the traffic of a finished run; without its events, its largest round is an average one plus joining."""
    sent = summary["communication"]
    up, down, participations = sent["uplink"], sent["downlink"], summary["full_model"]["participations"]
    once, joined = sent["one_off"]["payload_bytes"], sent["one_off"]["messages"] / 2  # a request and its answer
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
    """Return the traffic of one round; None without the run's events."""
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


def least_sent(rounds: int, participants: int) -> Sent:
    """Return the traffic of a run whose messages are all empty: no method sends less."""
    each, nothing = rounds * participants, len(encode({}))
    return Sent(rounds, each, each * nothing, each * nothing, 0, 2 * each, participants, 2 * nothing)


class Limit(Protocol):
    @property
    def words(self) -> str: ...

    def share(self, sent: Sent) -> float:
        """Return the share of the limit that the traffic takes; above 1 it is exceeded."""


@dataclass(frozen=True)
class Total:
    """A limit of the bytes of all clients: uplink, downlink and one-time traffic."""

    bytes: int

    @property
    def words(self) -> str:
        return f"{size(self.bytes)} in all"

    def share(self, sent: Sent) -> float:
        return sent.total / self.bytes


@dataclass(frozen=True)
class EachRound:
    """A limit of the bytes of one client in any round, both directions, with joining."""

    bytes: int

    @property
    def words(self) -> str:
        return f"{size(self.bytes)} a client and round"

    def share(self, sent: Sent) -> float:
        return sent.busiest / self.bytes


@dataclass(frozen=True)
class Deadline:
    """A limit of the seconds on the link of a client that takes part in every round, without its computing time."""

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


def read_limit(budget: str | None, round_budget: str | None, link: str | None, deadline: float | None) -> Limit:
    """Return the one limit of three that was given."""
    if sum((budget is not None, round_budget is not None, link is not None or deadline is not None)) != 1:
        raise InputError("Give one limit: --budget, --round-budget, or --link with --deadline.")
    if budget is not None:
        return Total(_read_bytes("--budget", budget))
    if round_budget is not None:
        return EachRound(_read_bytes("--round-budget", round_budget))
    if link is None or deadline is None:
        raise InputError("--link and --deadline need each other.")
    if not math.isfinite(deadline):
        raise InputError(f"--deadline {deadline}: allowed are seconds, such as 3600.")
    return Deadline(read_link(link), link, deadline)


def _read_bytes(option: str, text: str) -> int:
    try:
        number = read_whole(text)
        return TypeAdapter(Bytes).validate_python(text if number is None else number)
    except ValidationError:
        raise InputError(f"{option} {text}: allowed are sizes such as '10 MB', '900 B' or '64 KiB'.") from None


def message_within(limit: Limit, rounds: int, participants: int, closing: int, free: bool, late: bool = False) -> int:
    """Return the bytes that each message may have: one each way in every round, and one per closing client.

    `free`: the first round has no message down. `late`: some clients join in later rounds.
    """
    up = rounds * participants
    down = up - free * participants + closing

    def share(length: int) -> float:
        messages, busiest = 2 * (up + closing), (3 if closing else 2) * length + (0 if free and not late else JOINING)
        return limit.share(Sent(rounds, up, up * length, down * length, 0, messages, participants, busiest))

    none, each = share(0), share(1) - share(0)
    if each <= 0 or not math.isfinite(none):
        return 1  # a link whose latency makes bytes negligible
    return max(1, math.floor((1 - SPARED - none) / each))
