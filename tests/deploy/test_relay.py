"""The relay counts every byte, carries them as a link would, and simulates faults."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.core.network import PROFILES
from refprotofl.deploy.relay import Address, Cut, LinkDirection, Relay, read_address, read_cut, read_profile

LOCAL = "127.0.0.1"


def test_chunks_wait_for_those_before_them() -> None:
    """1,000 bytes take a second at 8 kbit/s, and half a second more to arrive."""
    link = LinkDirection(rate=8_000, latency=0.5)
    assert link.due(1000, now=10.0) == 11.5
    assert link.due(500, now=10.2) == 12.0
    assert link.due(1000, now=20.0) == 21.5
    assert LinkDirection(latency=0.25).due(10**9, now=1.0) == 1.25


def test_bits_are_flipped_at_the_given_rate() -> None:
    link = LinkDirection(flip_every=1000, seed=3)
    chunks = [bytes(100) for _ in range(10_000)]
    spoilt = [link.cross(chunk) for chunk in chunks]
    changed = [one for one in spoilt if any(one)]
    assert link.crossed == 1_000_000
    assert link.flipped == len(changed) == pytest.approx(1000, rel=0.15)
    assert all(sum(byte.bit_count() for byte in one) == 1 for one in changed)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while data := await reader.read(10_000):
                writer.write(data)
                await writer.drain()
    finally:
        await closed(writer)


def with_relay(relay: Callable[[Address], Relay], work: Callable[[Relay, Address], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), await asyncio.start_server(echo, LOCAL, 0) as server:
            made = relay(Address(*server.sockets[0].getsockname()[:2]))
            async with made.listen(Address(LOCAL, 0)) as listening:
                await work(made, listening)

    asyncio.run(run())


async def round_trip(address: Address, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(data)
        writer.write_eof()
        return await reader.read(-1)
    finally:
        await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def test_what_is_said_comes_back_and_is_counted_both_ways() -> None:
    data = bytes(range(256)) * 4000

    async def work(relay: Relay, address: Address) -> None:
        assert await asyncio.gather(*(round_trip(address, data) for _ in range(3))) == [data] * 3
        assert (relay.counts["up"], relay.counts["down"]) == (3 * len(data), 3 * len(data))
        assert (relay.counts["connections"], relay.counts["refused"]) == (3, 0)

    with_relay(Relay, work)


def test_a_link_takes_its_time() -> None:
    """20 kB at 400 kbit/s take 0.4 s each way, and the latency twice."""

    async def work(relay: Relay, address: Address) -> None:
        begin = time.monotonic()
        assert await round_trip(address, bytes(20_000)) == bytes(20_000)
        assert time.monotonic() - begin > 0.4 + 0.2

    with_relay(lambda to: Relay(to, LinkDirection(400_000, 0.1), LinkDirection(400_000, 0.1)), work)


def test_a_cut_link_carries_nothing() -> None:
    async def work(relay: Relay, address: Address) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        relay.cut_off()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        await closed(writer)
        with pytest.raises((ConnectionError, AssertionError)):
            assert await round_trip(address, b"during") == b"during"
        relay.restore()
        assert await round_trip(address, b"after") == b"after"
        assert relay.counts["refused"] == 1

    with_relay(Relay, work)


def test_a_server_that_is_not_there_is_no_end_of_the_relay() -> None:
    async def work(relay: Relay, address: Address) -> None:
        there, relay.to = relay.to, Address(LOCAL, 9)
        with pytest.raises((ConnectionError, AssertionError)):
            assert await round_trip(address, b"no one") == b"no one"
        relay.to = there
        assert await round_trip(address, b"someone") == b"someone"

    with_relay(Relay, work)


@pytest.mark.parametrize("text", ["", "9092", ":9092", "here:", "here:port", "here:99999"])
def test_what_is_no_address_is_reported(text: str) -> None:
    with pytest.raises(InputError, match=r"--to .*host:port"):
        read_address(text, "--to")
    assert read_address("[::1]:80", "--to") == Address("::1", 80)
    assert str(Address("::1", 80)) == "[::1]:80"


@pytest.mark.parametrize("text", ["server:9000:8443", "a:b:80"])
def test_an_address_has_one_port(text: str) -> None:
    with pytest.raises(InputError, match=r"--to .* has a colon and is no IPv6 address"):
        read_address(text, "--to")


@pytest.mark.parametrize("text", ["wifi;3:lte", "3:lte;wifi", "lte;0:lte"])
def test_a_profile_that_is_not_the_same_for_all_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"--profile {text}: a relay carries all connections over one link"):
        read_profile(text)
    assert read_profile("lte") == read_profile(" lte; ") == PROFILES["lte"]


@pytest.mark.parametrize("text", ["", "30", "30:", ":20", "30:0", "-1:2", "nan:1", "1:inf"])
def test_what_is_no_cut_is_reported(text: str) -> None:
    with pytest.raises(InputError, match="--cut"):
        read_cut(text)
    assert read_cut("30:20") == Cut(30, 20)


def test_the_command_counts_and_ends_by_itself(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    program = "from refprotofl.cli import main; main()"
    options = ["--to", "127.0.0.1:9", "--seconds", "1.5", "--counts", str(counts), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, "relay", *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Relaying 127.0.0.1:" in done.stderr
    kept, found = json.loads(counts.read_text()), json.loads(done.stdout)
    assert (kept.pop("seconds"), found.pop("seconds")) == (pytest.approx(1.5, abs=1), pytest.approx(1.5, abs=1))
    assert kept == found == {"up": 0, "down": 0, "connections": 0, "refused": 0, "flipped": 0}


def test_ctrl_c_ends_the_command_quietly_with_a_connection_open() -> None:
    """The connection is cut, and the last line has the counts."""
    program = "from refprotofl.cli import main; main()"
    with socket.create_server((LOCAL, 0)) as server:
        options = ["--to", f"{LOCAL}:{server.getsockname()[1]}"]
        command = [sys.executable, "-c", program, "relay", *options]
        relay = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert relay.stderr is not None
        address = read_address(relay.stderr.readline().split()[1], "--listen")
        with socket.create_connection((address.host, address.port)) as near, server.accept()[0] as far:
            near.sendall(b"12345")
            assert far.recv(5, socket.MSG_WAITALL) == b"12345"
            relay.send_signal(signal.SIGINT)
            found, complaints = relay.communicate(timeout=60)
    assert (relay.returncode, complaints) == (0, "")
    assert found == "5 B up and 0 B down over 1 connection; 0 refused, 0 bits flipped\n"
