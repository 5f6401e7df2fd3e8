"""A relay for TCP connections: every byte is counted, both ways, and it goes as the link would carry it."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from refprotofl.relay.pacing import Lane, at

CHUNK = 16_384
AHEAD = 64  # chunks of a connection that are under way: who sends more waits, as on a link


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass
class Counts:
    """What crossed so far, as TCP has it: TLS, HTTP and Flower's own messages are in it."""

    up: int
    down: int
    connections: int
    refused: int
    flipped: int


@dataclass
class Relay:
    """`up` is what clients send. While it is `cut` nobody comes through, and who was connected no longer is."""

    to: Address
    up: Lane = field(default_factory=Lane)
    down: Lane = field(default_factory=Lane)
    cut: bool = False
    connections: int = 0
    refused: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def counts(self) -> Counts:
        flipped = self.up.flipped + self.down.flipped
        return Counts(self.up.crossed, self.down.crossed, self.connections, self.refused, flipped)

    async def listen(self, address: Address) -> asyncio.Server:
        return await asyncio.start_server(self._serve, address.host, address.port, limit=CHUNK)

    def cut_off(self) -> None:
        self.cut = True
        for writer in self._open:
            writer.transport.abort()

    def join(self) -> None:
        self.cut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            self.refused += 1
            writer.transport.abort()
            return
        try:
            onward = await asyncio.open_connection(self.to.host, self.to.port, limit=CHUNK)
        except OSError:
            self.refused += 1
            writer.transport.abort()
            return
        self.connections += 1
        both = {writer, onward[1]}
        self._open |= both
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, onward[1], self.up))
                pumps.create_task(_pump(onward[0], writer, self.down))
        finally:
            self._open -= both
            for one in both:
                one.close()
                with suppress(OSError):
                    await one.wait_closed()


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
