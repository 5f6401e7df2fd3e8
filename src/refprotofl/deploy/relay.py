"""A relay for TCP connections: counts every byte in both directions, and delays, cuts or corrupts like a real link."""

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

from refprotofl.core import InputError, Link, MachineError, read_host, read_links, read_whole, with_port
from refprotofl.records import Crossed, make_folders, write_crossed


@dataclass
class LinkDirection:
    """One direction of a link, shared by all connections; without a rate it does not delay.

    `flip_every`: one bit is flipped per this many bytes on average, 0 for never. Flips are reproducible: they are
    drawn from the seed.
    """

    rate: float | None = None  # bits per second
    latency: float = 0.0  # seconds
    flip_every: int = 0
    seed: int = 0
    crossed: int = 0  # bytes so far
    flipped: int = 0
    _free: float = 0.0  # when the last chunk has been sent
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def due(self, size: int, now: float) -> float:
        """Return when a chunk of `size` bytes received now arrives at the other end, after the chunks before it."""
        begin = max(now, self._free)
        self._free = begin + (8 * size / self.rate if self.rate else 0.0)
        return self._free + self.latency

    def cross(self, chunk: bytes) -> bytes:
        """Count a chunk, and flip a bit of it at random."""
        self.crossed += len(chunk)
        if not self.flip_every or self._draw.random() >= len(chunk) / self.flip_every:
            return chunk
        place = self._draw.randrange(len(chunk))
        self.flipped += 1
        return chunk[:place] + bytes([chunk[place] ^ 1 << self._draw.randrange(8)]) + chunk[place + 1 :]


async def sleep_until(moment: float) -> None:
    """Sleep until this moment of the loop's clock."""
    left = moment - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)


CHUNK = 16_384
AHEAD = 64  # chunks of a connection in flight; a sender of more has to wait


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return with_port(self.host, self.port)


@dataclass
class Relay:
    """A TCP relay to one address. `up`: from clients. While it is `cut`, it refuses and resets all connections."""

    to: Address
    up: LinkDirection = field(default_factory=LinkDirection)
    down: LinkDirection = field(default_factory=LinkDirection)
    cut: bool = False
    connections: int = 0
    refused: int = 0
    begun: float = field(default_factory=time.monotonic)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def counts(self) -> Crossed:
        """The TCP bytes relayed so far, and other counts."""
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
        """Yield the address that it listens on; close every connection at the end."""
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

    def restore(self) -> None:
        self.cut = False

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve in a task of our own: asyncio prints a stack trace when one of its own is cancelled."""
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
        """Connect to the other end; return None if it cannot be reached or the link is cut meanwhile."""
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
        """Close the connection at the end, after pending data are sent, unless the link is cut."""
        self._open.add(writer)
        try:
            yield
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._open.discard(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: a regular close would look like an intended end."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: LinkDirection) -> None:
    """Copy from one end to the other until it is closed, and pass the close on."""
    waiting: deque[tuple[float, bytes]] = deque()
    room, more = asyncio.Semaphore(AHEAD), asyncio.Semaphore(0)

    async def take() -> None:
        clock = asyncio.get_running_loop()
        while True:
            await room.acquire()
            chunk = await reader.read(CHUNK)
            waiting.append((link.due(len(chunk), clock.time()), link.cross(chunk) if chunk else chunk))
            more.release()
            if not chunk:
                return

    async def give() -> None:
        while True:
            await more.acquire()
            moment, chunk = waiting.popleft()
            await sleep_until(moment)
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


EVERY = 1.0  # seconds between two writes of the counts


@dataclass(frozen=True)
class Cut:
    """An interruption of the link: its start in seconds after the first connection, and its length."""

    after: float
    seconds: float


def read_address(text: str, option: str) -> Address:
    host, _, typed = text.rpartition(":")
    port = read_whole(typed)
    if not host or port is None or port > 65_535:
        raise InputError(f"{option} {text}: expected host:port, such as 127.0.0.1:8443.")
    return Address(read_host(host, option), port)


def read_profile(text: str) -> Link:
    """Return the link that all connections share; raise InputError for links of single clients."""
    links = read_links(text, "--profile")
    if links.own:
        raise InputError(
            f"--profile {text}: a relay carries all connections over one link. To give each client its own link, "
            "start one relay for each."
        )
    return links.common


def read_cut(text: str) -> Cut:
    after, _, seconds = text.partition(":")
    try:
        cut = Cut(float(after), float(seconds))
    except ValueError:
        cut = Cut(-1, -1)
    if not (0 <= cut.after < float("inf") and 0 < cut.seconds < float("inf")):
        raise InputError(f"--cut {text}: expected AFTER:DURATION in seconds, such as 30:20.")
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
    """Run a relay until it is cancelled or its time is over, and return its counts.

    `ready` is called with the address it listens on. `counts`: a file that is updated every second.
    """
    up = LinkDirection(link.up if link else None, link.latency if link else 0.0, flip_every, seed=1)
    down = LinkDirection(link.down if link else None, link.latency if link else 0.0, flip_every, seed=2)
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
        with suppress(TimeoutError, asyncio.CancelledError):  # the time is over, or Ctrl-C
            async with asyncio.timeout(seconds):
                await _count(relay, counts)
    _write(relay, counts)
    return relay.counts


async def _count(relay: Relay, counts: Path | None) -> None:
    while True:
        await asyncio.sleep(EVERY)
        with suppress(MachineError):  # the run may be preparing its folder; a lasting error shows in the last write
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
    relay.restore()
