"""A relay for TCP connections: every byte is counted, both ways, and it goes as the link would carry it."""

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from refprotofl.basics.hosts import with_port
from refprotofl.records.crossed import Crossed
from refprotofl.relay.pacing import Lane, at

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
