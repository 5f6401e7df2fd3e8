"""Bytes that are not all as frequent, in about as many bits as their entropy: rANS (Duda 2013), in lanes.

    lanes             (varint)
    for each context: first and last symbol (a byte each), the frequencies from one to the other (varints)
    states            (4 bytes a lane)
    words             (2 bytes each, in the order in which the decoder asks for them)

Each symbol belongs to a context, which both sides know; a context has frequencies of its own, which add up to 4096.
Symbols are dealt to the lanes in turn, so that numpy moves a row of them at once.
"""

import numpy as np
from numpy.typing import NDArray

from refprotofl.wire.error import WireError
from refprotofl.wire.reader import Reader, varint

Symbols = NDArray[np.uint8]
Integers = NDArray[np.int64]

_PRECISION = 12
_WHOLE = 1 << _PRECISION  # what the frequencies of a context add up to
_LEAST = 1 << 16  # a state is from here to below 2**32
A_LANE = 4096  # symbols for each lane, or its state would weigh too much
_MOST_LANES = 1024


def encode_symbols(symbols: Symbols, contexts: Integers, count: int, a_lane: int = A_LANE) -> bytes:
    """The code of symbols (n,), each of one of `count` contexts (n,). Shorter lanes are faster and take more bytes."""
    tables = [_frequencies(counts) for counts in _counts(symbols, contexts, count)]
    lanes = _lanes(symbols.size, a_lane)
    states, words = _push(symbols, contexts, np.stack(tables), lanes)
    head = varint(lanes) + b"".join(map(_table_bytes, tables))
    return head + states.astype("<u4").tobytes() + words.astype("<u2").tobytes()


def decode_symbols(reader: Reader, contexts: Integers, count: int, a_lane: int = A_LANE) -> Symbols:
    """What `encode_symbols` was given; what lies behind the code is left.

    Other lanes than the encoder takes are refused: with few of them to read a code would take long.
    """
    lanes = reader.varint()
    if lanes != _lanes(contexts.size, a_lane):
        raise WireError(f"malformed: {lanes} lanes for {contexts.size} symbols")
    tables = np.stack([_read_table(reader) for _ in range(count)])
    states = np.frombuffer(reader.take(4 * lanes), "<u4").astype(np.uint64)
    words = np.frombuffer(reader.peek()[: reader.left // 2 * 2], "<u2").astype(np.uint64)
    symbols, used = _pull(states, words, contexts, tables)
    reader.take(2 * used)
    return symbols


def least_code_bits(symbols: Symbols, contexts: Integers, count: int) -> float:
    """The entropy of the symbols given their contexts, summed up."""
    bits = 0.0
    for counts in _counts(symbols, contexts, count):
        seen = counts[counts > 0].astype(np.float64)
        bits += float(-(seen * np.log2(seen / seen.sum())).sum()) if seen.size else 0.0
    return bits


def about_bytes(symbols: Symbols, contexts: Integers, count: int) -> float:
    """How long the code will be, to a few bytes; it is 1 in 1000 longer than the entropy."""
    tables = sum(len(_table_bytes(_frequencies(counts))) for counts in _counts(symbols, contexts, count))
    return least_code_bits(symbols, contexts, count) / 8 * 1.001 + tables + 4 * _lanes(symbols.size, A_LANE)


def least_bytes(size: int, count: int) -> int:
    """Of the code of so many symbols of `count` contexts, if each context has but one."""
    return (
        len(varint(_lanes(size, A_LANE)))
        + count * len(_table_bytes(_frequencies(np.zeros(256, np.int64))))
        + (4 * _lanes(size, A_LANE))
    )


def _counts(symbols: Symbols, contexts: Integers, count: int) -> Integers:
    """How often each symbol occurs in each context, (count, 256)."""
    return np.bincount(256 * contexts + symbols, minlength=256 * count).reshape(count, 256)


def _lanes(size: int, a_lane: int) -> int:
    return min(max(size // a_lane, 1), _MOST_LANES)


def _frequencies(counts: Integers) -> Integers:
    """Shares of 4096 (256,), at least 1 for whatever occurs; with nothing to tell the first symbol has them all."""
    total = int(counts.sum())
    if not total:
        counts, total = np.eye(1, 256, dtype=np.int64)[0], 1
    shares = np.where(counts > 0, np.maximum(counts * _WHOLE // total, 1), 0)
    while (over := int(shares.sum()) - _WHOLE) > 0:  # many rare ones were lifted to 1
        largest = int(shares.argmax())
        shares[largest] -= min(over, int(shares[largest]) // 2)
    shares[int(shares.argmax())] -= over
    return np.asarray(shares)


def _table_bytes(shares: Integers) -> bytes:
    first, last = np.flatnonzero(shares)[[0, -1]].tolist()
    return bytes([first, last]) + b"".join(varint(share) for share in shares[first : last + 1].tolist())


def _read_table(reader: Reader) -> Integers:
    first, last = reader.byte(), reader.byte()
    if last < first:
        raise WireError("malformed: frequencies of no symbol")
    shares = np.zeros(256, np.int64)
    for symbol in range(first, last + 1):
        shares[symbol] = min(reader.varint(), _WHOLE + 1)
    if int(shares.sum()) != _WHOLE:
        raise WireError("malformed: frequencies that do not add up")
    return shares


def _rows(values: Integers, lanes: int, fill: int) -> NDArray[np.uint64]:
    """One symbol of each lane a row; the last row is filled up."""
    padded = np.full(-(-values.size // lanes) * lanes, fill, np.uint64)
    padded[: values.size] = values
    return padded.reshape(-1, lanes)


def _push(
    symbols: Symbols, contexts: Integers, tables: Integers, lanes: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    starts = np.cumsum(tables, axis=1) - tables
    widths = _rows(tables[contexts, symbols], lanes, _WHOLE)  # a symbol that fills the context changes no state
    begins = _rows(starts[contexts, symbols], lanes, 0)
    states, chunks = np.full(lanes, _LEAST, np.uint64), [np.zeros(0, np.uint64)]
    for width, begin in zip(widths[::-1], begins[::-1], strict=True):
        full = states >= width << np.uint64(32 - _PRECISION)
        chunks.append(states[full] & np.uint64(0xFFFF))
        states[full] >>= np.uint64(16)
        states = (states // width << np.uint64(_PRECISION)) + states % width + begin
    return states, np.concatenate(chunks[::-1])


def _pull(
    states: NDArray[np.uint64], words: NDArray[np.uint64], contexts: Integers, tables: Integers
) -> tuple[Symbols, int]:
    lanes, used = states.size, 0
    starts = (np.cumsum(tables, axis=1) - tables).astype(np.uint64)
    owners = np.stack([np.repeat(np.arange(256, dtype=np.uint8), table) for table in tables])  # (contexts, 4096)
    shares, rows = tables.astype(np.uint64), _rows(contexts, lanes, len(tables)).astype(np.int64)
    owners, starts = np.vstack([owners, np.zeros((1, _WHOLE), np.uint8)]), np.vstack([starts, starts[:1] * 0])
    shares = np.vstack([shares, np.full((1, 256), _WHOLE, np.uint64)])  # of what fills up the last row
    symbols = np.zeros(rows.shape, np.uint8)
    for number, row in enumerate(rows):
        slots = states & np.uint64(_WHOLE - 1)
        found = owners[row, slots.astype(np.int64)]
        states = shares[row, found] * (states >> np.uint64(_PRECISION)) + slots - starts[row, found]
        empty = np.flatnonzero(states < _LEAST)
        if used + empty.size > words.size:
            raise WireError("truncated: the code of symbols ends early")
        states[empty] = states[empty] << np.uint64(16) | words[used : used + empty.size]
        used += empty.size
        symbols[number] = found
    return symbols.ravel()[: contexts.size], used
