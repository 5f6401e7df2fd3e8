"""When a chunk may go on over a link of so many bits a second, and what becomes of it on the way.

A relay for TCP connections: every byte is counted, both ways, and it goes as the link would carry it.

A relay as a process: until it is interrupted, its time is over or it was told to end.
"""

import asyncio
import random
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from refprotofl.core.errors import InputError, MachineError
from refprotofl.core.network import Link, read_host, read_links, with_port
from refprotofl.core.units import read_whole
from refprotofl.records.atomic_files import make_folders
from refprotofl.records.relay_traffic import Crossed, write_crossed


@dataclass
class Lane:
    """One direction of a link, which all connections share; without a rate it is as fast as it comes.

    `flip_every`: a bit is turned over once in so many bytes on average, 0 for never; by a draw of its own, so that a
    fault can be had again.
    """

    rate: float | None = None  # bits a second
    latency: float = 0.0  # seconds
    flip_every: int = 0
    seed: int = 0
    crossed: int = 0  # bytes so far
    flipped: int = 0
    _free: float = 0.0  # when the last chunk is through
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def due(self, size: int, now: float) -> float:
        """When a chunk of `size` bytes that comes now is at the other end. Chunks wait for those before them."""
        begin = max(now, self._free)
        self._free = begin + (8 * size / self.rate if self.rate else 0.0)
        return self._free + self.latency

    def cross(self, chunk: bytes) -> bytes:
        """Counts a chunk, and spoils it if it is its turn."""
        self.crossed += len(chunk)
        if not self.flip_every or self._draw.random() >= len(chunk) / self.flip_every:
            return chunk
        place = self._draw.randrange(len(chunk))
        self.flipped += 1
        return chunk[:place] + bytes([chunk[place] ^ 1 << self._draw.randrange(8)]) + chunk[place + 1 :]


async def at(moment: float) -> None:
    """Comes back when the loop's clock is there."""
    left = moment - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)


CHUNK = 16_384
AHEAD = 64  # chunks of a connection that are under way: who sends more waits, as on a link


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return with_port(self.host, self.port)


@dataclass
class Relay:
    """`up` is what clients send. While it is `cut` nobody comes through, and who was connected no longer is."""

    to: Address
    up: Lane = field(default_factory=Lane)
    down: Lane = field(default_factory=Lane)
    cut: bool = False
    connections: int = 0
    refused: int = 0
    begun: float = field(default_factory=time.monotonic)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def counts(self) -> Crossed:
        """What crossed so far, as TCP has it."""
        return {
            "up": self.up.crossed,
            "down": self.down.crossed,
            "connections": self.connections,
            "refused": self.refused,
            "flipped": self.up.flipped + self.down.flipped,
            "seconds": round(time.monotonic() - self.begun, 3),
        }

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncIterator[Address]:
        """Gives the address that it listens on; at the end every connection is closed."""
        server = await asyncio.start_server(self._accept, address.host, address.port, limit=CHUNK)
        try:
            yield Address(*server.sockets[0].getsockname()[:2])
        finally:
            server.close()
            self.cut_off()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await server.wait_closed()

    def cut_off(self) -> None:
        self.cut = True
        for writer in self._open:
            _reset(writer)

    def join(self) -> None:
        self.cut = False

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In a task of ours: of one that asyncio makes, it prints a trace when it is cancelled."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._closing(writer):
            far = await self._reach()
            if far is None:
                self.refused += 1
                _reset(writer)
                return
            self.connections += 1
            far_reader, far_writer = far
            async with self._closing(far_writer), asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, far_writer, self.up))
                pumps.create_task(_pump(far_reader, writer, self.down))

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The other end; None if it is not there, or the link is cut by the time that it is."""
        if self.cut:
            return None
        try:
            reader, writer = await asyncio.open_connection(self.to.host, self.to.port, limit=CHUNK)
        except OSError:
            return None
        if self.cut:
            writer.transport.abort()
            return None
        return reader, writer

    @asynccontextmanager
    async def _closing(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Closed at the end, with what is under way still sent, unless the link is cut."""
        self._open.add(writer)
        try:
            yield
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._open.discard(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """As a server that is not there: who is hung up on politely takes it for an end that was meant."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: Lane) -> None:
    """From one end to the other until it is closed; then the other end is told."""
    waiting: deque[tuple[float, bytes]] = deque()
    room, more = asyncio.Semaphore(AHEAD), asyncio.Semaphore(0)

    async def take() -> None:
        clock = asyncio.get_running_loop()
        while True:
            await room.acquire()
            chunk = await reader.read(CHUNK)
            waiting.append((lane.due(len(chunk), clock.time()), lane.cross(chunk) if chunk else chunk))
            more.release()
            if not chunk:
                return

    async def give() -> None:
        while True:
            await more.acquire()
            moment, chunk = waiting.popleft()
            await at(moment)
            if not chunk:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()
            room.release()

    with suppress(OSError):  # a connection that breaks is broken for both ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(take())
                both.create_task(give())
        except* OSError:
            writer.transport.abort()


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
