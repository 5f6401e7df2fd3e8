"""A relay as a process: until it is interrupted, its time is over or it was told to end."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from refprotofl.basics.hosts import read_host
from refprotofl.basics.links import Link, read_links
from refprotofl.basics.units import read_whole
from refprotofl.errors import InputError, MachineError
from refprotofl.records.crossed import Crossed, write_crossed
from refprotofl.records.files import make_folders
from refprotofl.relay.pacing import Lane
from refprotofl.relay.relay import Address, Relay

EVERY = 1.0  # seconds between two counts that are written


@dataclass(frozen=True)
class Cut:
    """When the link is cut, in seconds from the first connection on, and for how long."""

    after: float
    seconds: float


def read_address(text: str, option: str) -> Address:
    host, _, typed = text.rpartition(":")
    port = read_whole(typed)
    if not host or port is None or port > 65_535:
        raise InputError(f"{option} {text}: it should be host:port, such as 127.0.0.1:8443.")
    return Address(read_host(host, option), port)


def read_profile(text: str) -> Link:
    """The one link that all connections share; clients' own are for the report, which knows who sent what."""
    links = read_links(text, "--profile")
    if links.own:
        raise InputError(
            f"--profile {text}: a relay carries all connections over one link and cannot tell clients apart; for "
            "clients with links of their own start a relay for each."
        )
    return links.common


def read_cut(text: str) -> Cut:
    after, _, seconds = text.partition(":")
    try:
        cut = Cut(float(after), float(seconds))
    except ValueError:
        cut = Cut(-1, -1)
    if not (0 <= cut.after < float("inf") and 0 < cut.seconds < float("inf")):
        raise InputError(f"--cut {text}: it should be when and for how long in seconds, such as 30:20.")
    return cut


async def run_relay(
    listen: Address,
    to: Address,
    link: Link | None,
    *,
    ready: Callable[[Address], None],
    cut: Cut | None = None,
    flip_every: int = 0,
    seconds: float | None = None,
    counts: Path | None = None,
) -> Crossed:
    """`ready` is told where it listens; `counts` is written again and again while it runs, its folder made for it."""
    up = Lane(link.up if link else None, link.latency if link else 0.0, flip_every, seed=1)
    down = Lane(link.down if link else None, link.latency if link else 0.0, flip_every, seed=2)
    relay = Relay(to, up, down)
    if counts is not None:
        make_folders(counts.parent)
    _write(relay, counts)
    async with AsyncExitStack() as cleanup:
        try:
            address = await cleanup.enter_async_context(relay.listen(listen))
        except OSError as problem:
            raise InputError(f"--listen {listen}: cannot listen there: {problem.strerror or problem}.") from None
        if cut is not None:
            cleanup.callback(asyncio.create_task(_cut(relay, cut)).cancel)
        ready(address)
        with suppress(TimeoutError, asyncio.CancelledError):  # its time is over, or Ctrl-C
            async with asyncio.timeout(seconds):
                await _count(relay, counts)
    _write(relay, counts)
    return relay.counts


async def _count(relay: Relay, counts: Path | None) -> None:
    while True:
        await asyncio.sleep(EVERY)
        with suppress(
            MachineError
        ):  # a run that begins tidies its folder; the last count tells if nothing can be written
            _write(relay, counts)


def _write(relay: Relay, counts: Path | None) -> None:
    if counts is not None:
        write_crossed(counts, relay.counts)


async def _cut(relay: Relay, cut: Cut) -> None:
    while not relay.connections:
        await asyncio.sleep(0.05)
    await asyncio.sleep(cut.after)
    relay.cut_off()
    await asyncio.sleep(cut.seconds)
    relay.join()
