"""Payloads in parts: whatever the order in which they arrive, and however often the link breaks."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from refprotofl.deploy.transport import Unreadable
from refprotofl.engines.mqtt.frames import PART, Part, Want, announce
from refprotofl.engines.mqtt.parts import STALLED, WINDOW, ContentStore, FileSink, Incoming, MemorySink, parts_of

PAYLOAD = Random(0).randbytes(20 * PART + 100)
WHAT = announce(PAYLOAD)
SESSION = b"abcd"


def fetch(incoming: Incoming, deliver: Callable[[list[Part]], list[Part]]) -> int:
    """Fetch a payload over a link that delivers its parts in its own way; return the parts that were sent."""
    want, sent = incoming.begin(), 0
    while want is not None:
        parts = list(parts_of(PAYLOAD, want))
        sent += len(parts)
        wants = [incoming.take(part) for part in deliver(parts)]
        want = next((one for one in wants if one is not None), None)
        if want is None and not incoming.complete:
            want = incoming.begin()  # as after a pause without a part
    return sent


def shuffled(parts: list[Part]) -> list[Part]:
    return random.Random(1).sample(parts, len(parts))


@pytest.mark.parametrize(
    "deliver",
    [lambda parts: parts, shuffled, lambda parts: [*parts, *parts], lambda parts: parts[::-1]],
    ids=["in order", "shuffled", "twice", "backwards"],
)
def test_a_payload_arrives_whole(deliver: Callable[[list[Part]], list[Part]]) -> None:
    incoming = Incoming(WHAT, MemorySink(), SESSION, lambda: 0.0)
    fetch(incoming, deliver)
    assert incoming.whole() == PAYLOAD


def test_lost_parts_alone_are_sent_again() -> None:
    draw = random.Random(2)
    incoming = Incoming(WHAT, MemorySink(), SESSION, lambda: 0.0)
    sent = fetch(incoming, lambda parts: [part for part in parts if draw.random() > 0.2])
    assert incoming.whole() == PAYLOAD
    assert sent < 6 * WHAT.parts


def test_a_process_that_starts_again_continues_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "payload.part"
    first = Incoming(WHAT, FileSink(path), SESSION, lambda: 0.0)
    want = first.begin()
    assert want == Want(SESSION, WHAT.key, 0, WINDOW)
    for part in list(parts_of(PAYLOAD, want))[:5]:
        first.take(part)
    path.write_bytes(path.read_bytes() + b"half a part")
    again = Incoming(WHAT, FileSink(path), SESSION, lambda: 0.0)
    assert again.begin() == Want(SESSION, WHAT.key, 5, WINDOW)
    fetch(again, lambda parts: parts)
    assert again.whole() == PAYLOAD


def test_parts_that_were_not_asked_for_or_have_another_length_are_ignored() -> None:
    incoming = Incoming(WHAT, MemorySink(), SESSION, lambda: 0.0)
    assert incoming.take(Part(WHAT.key, 0, PAYLOAD[:PART])) is None
    incoming.begin()
    for part in (Part(WHAT.key, WINDOW, bytes(PART)), Part(WHAT.key, 0, b"short"), Part(WHAT.key, 10**9, bytes(PART))):
        incoming.take(part)
    fetch(incoming, lambda parts: parts)
    assert incoming.whole() == PAYLOAD


def test_another_payload_than_the_announced_one_is_refused() -> None:
    incoming = Incoming(WHAT, MemorySink(), SESSION, lambda: 0.0)
    fetch(incoming, lambda parts: [Part(part.key, part.number, bytes(len(part.data))) for part in parts])
    with pytest.raises(Unreadable, match="digest that was announced"):
        incoming.whole()


def test_a_pause_without_parts_is_noticed() -> None:
    now = [0.0]
    incoming = Incoming(WHAT, MemorySink(), SESSION, lambda: now[0])
    incoming.begin()
    now[0] = STALLED - 1
    assert not incoming.stalled
    now[0] = STALLED + 1
    assert incoming.stalled


def test_a_store_gives_what_it_has_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store" / "content", most=250)
    payloads = [bytes([number]) * 100 for number in range(3)]
    for number, payload in enumerate(payloads):
        store.put(announce(payload), payload)
        os.utime(tmp_path / "store" / "content" / announce(payload).digest.hex(), (number, number))
    assert [store.find(announce(payload)) for payload in payloads] == [None, payloads[1], payloads[2]]
    (tmp_path / "store" / "content" / announce(payloads[1]).digest.hex()).write_bytes(b"damaged")
    assert store.find(announce(payloads[1])) is None
    assert (tmp_path / "store" / "content").stat().st_mode & 0o777 == 0o700
