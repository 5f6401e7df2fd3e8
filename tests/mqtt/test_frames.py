"""Frames of MQTT messages: the same after a journey, refused if they are not ours, and small."""

import zlib
from hashlib import sha256
from random import Random

import pytest

from refprotofl.deploy.headers import Answered, Route
from refprotofl.deploy.transport import Unreadable
from refprotofl.engines.mqtt import frames
from refprotofl.engines.mqtt.frames import Announced, Frame, Missing, NeedsHeader, Part, Reply, Request, Want, announce

SESSION, KEY = b"abcd", b"12345678"


@pytest.mark.parametrize(
    "frame",
    [
        Request(SESSION, 7, "ask", 0, b"header", b"payload"),
        Request(SESSION, 300, "run", 299, b"", announce(b"x" * 100_000)),
        Request(SESSION, 1, "hello", 0, b"h", b""),
        Reply(9, b"header", b"payload"),
        Reply(9, b"", Announced(bytes(32), 10**12)),
        Want(SESSION, KEY, 0, 16),
        Part(KEY, 1000, b"data"),
        Missing(KEY),
        NeedsHeader(5),
    ],
)
def test_a_frame_is_the_same_after_its_journey(frame: Frame) -> None:
    assert frames.read_frame(frame.encode()) == frame


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"\x06", b"\x40" + bytes(40), b"\x01\x80\x80"])
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        frames.read_frame(data)


def test_a_header_needs_its_dictionary() -> None:
    text = frames.header_text({"state": Random(0).randbytes(32).hex()})
    packed = frames.compress(text, b"dictionary " + text)
    assert len(packed) < 20
    assert frames.decompress(packed, b"dictionary " + text) == text
    with pytest.raises(Unreadable):
        frames.decompress(packed, b"")


def test_a_header_cannot_grow_beyond_its_limit() -> None:
    squeezing = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, frames.COMMON)
    bomb = bytes(3) + squeezing.compress(b" " * 100_000_000) + squeezing.flush()
    with pytest.raises(Unreadable, match="too long"):
        frames.decompress(bomb)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"[" * 100_000, b"1"])
def test_a_header_is_a_json_object(text: bytes) -> None:
    with pytest.raises(Unreadable):
        frames.read_header(text)


def test_the_headers_of_a_round_take_a_few_dozen_bytes() -> None:
    """Digests that crossed before are referred to, and an answer refers to its request."""
    run, *states = (sha256(bytes([number])).hexdigest() for number in range(6))  # texts that do not compress
    route = Route(run[:32], 3, 8, 2, 0, "train", True, states[3], states[:3])
    asked = frames.header_text(route.header())
    answered = frames.header_text(Answered.to(route, states[4]).header())
    following = Route(run[:32], 3, 9, 1, 0, "prototypes", True, states[4], [*states[1:3], states[4]])
    assert len(frames.compress(answered, asked)) < 75
    assert len(frames.compress(frames.header_text(following.header()), asked + answered)) < 75
