"""An entropy code of bytes: rANS (Duda 2013), in lanes.

    lanes             (varint)
    for each context: first and last symbol (a byte each), the frequencies from one to the other (varints)
    states            (4 bytes a lane)
    words             (2 bytes each, in the order in which the decoder asks for them)

Each symbol belongs to a context, which both sides know. A context has its own frequencies, which add up to 4096.
Symbols are assigned to the lanes in turn, so that numpy moves a row of them at once.
"""

import numpy as np
from numpy.typing import NDArray

from refprotofl.wire.primitives import Reader, WireError, varint

Symbols = NDArray[np.uint8]
Integers = NDArray[np.int64]

_PRECISION = 12
_WHOLE = 1 << _PRECISION  # the sum of a context's frequencies
_LEAST = 1 << 16  # a state is from here to below 2**32
A_LANE = 4096  # symbols for each lane, or its state would weigh too much
_MOST_LANES = 1024


def encode_symbols(symbols: Symbols, contexts: Integers, count: int, a_lane: int = A_LANE) -> bytes:
    """Encode symbols (n,), each in one of `count` contexts (n,). Shorter lanes are faster and take more bytes."""
    tables = [_frequencies(counts) for counts in _counts(symbols, contexts, count)]
    lanes = _lanes(symbols.size, a_lane)
    states, words = _push(symbols, contexts, np.stack(tables), lanes)
    head = varint(lanes) + b"".join(map(_table_bytes, tables))
    return head + states.astype("<u4").tobytes() + words.astype("<u2").tobytes()


def decode_symbols(reader: Reader, contexts: Integers, count: int, a_lane: int = A_LANE) -> Symbols:
    """Decode symbols; bytes after the code are left unread.

    Another number of lanes than the encoder's is refused: with few lanes, decoding would be slow.
    """
    lanes = reader.varint()
    if lanes != _lanes(contexts.size, a_lane):
        raise WireError(f"malformed: {lanes} lanes for {contexts.size} symbols")
    tables = np.stack([_read_table(reader) for _ in range(count)])
    states = np.frombuffer(reader.take(4 * lanes), "<u4").astype(np.int64)
    words = np.frombuffer(reader.peek()[: reader.left // 2 * 2], "<u2").astype(np.int64)
    symbols, used = _pop(states, words, contexts, tables)
    reader.take(2 * used)
    return symbols


def least_code_bits(symbols: Symbols, contexts: Integers, count: int) -> float:
    """Return the sum of the entropies of the symbols, given their contexts."""
    return sum(map(_entropy, _counts(symbols, contexts, count)))


def about_bytes(symbols: Symbols, contexts: Integers, count: int) -> float:
    """Estimate the length of the code to a few bytes; it is 1 in 1000 longer than the entropy."""
    counted = _counts(symbols, contexts, count)
    tables = sum(len(_table_bytes(_frequencies(counts))) for counts in counted)
    return sum(map(_entropy, counted)) / 8 * 1.001 + tables + 4 * _lanes(symbols.size, A_LANE)


def least_bytes(size: int, count: int) -> int:
    """Return the length of the code of `size` symbols in `count` contexts if each context has only one symbol."""
    return (
        len(varint(_lanes(size, A_LANE)))
        + count * len(_table_bytes(_frequencies(np.zeros(256, np.int64))))
        + (4 * _lanes(size, A_LANE))
    )


def _counts(symbols: Symbols, contexts: Integers, count: int) -> Integers:
    """Count each symbol in each context, (count, 256)."""
    return np.bincount(256 * contexts + symbols, minlength=256 * count).reshape(count, 256)


def _entropy(counts: Integers) -> float:
    """Return the summed entropy in bits of symbols with these counts."""
    seen = counts[counts > 0].astype(np.float64)
    return float(-(seen * np.log2(seen / seen.sum())).sum())


def _lanes(size: int, a_lane: int) -> int:
    return min(max(size // a_lane, 1), _MOST_LANES)


def _frequencies(counts: Integers) -> Integers:
    """Return frequencies out of 4096 (256,), at least 1 for a symbol that occurs; without counts all for the first."""
    total = int(counts.sum())
    if not total:
        counts, total = np.eye(1, 256, dtype=np.int64)[0], 1
    shares = np.where(counts > 0, np.maximum(counts * _WHOLE // total, 1), 0)
    while (over := int(shares.sum()) - _WHOLE) > 0:  # many rare symbols were raised to 1
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


def _rows(values: Integers, lanes: int, fill: int) -> Integers:
    """Arrange values in rows with one symbol per lane; the last row is padded."""
    padded = np.full(-(-values.size // lanes) * lanes, fill, np.int64)
    padded[: values.size] = values
    return padded.reshape(-1, lanes)


def _push(symbols: Symbols, contexts: Integers, tables: Integers, lanes: int) -> tuple[Integers, Integers]:
    starts = np.cumsum(tables, axis=1) - tables
    widths = _rows(tables[contexts, symbols], lanes, _WHOLE)  # a symbol that fills the context changes no state
    begins = _rows(starts[contexts, symbols], lanes, 0)
    states, chunks = np.full(lanes, _LEAST), [np.zeros(0, np.int64)]
    for width, begin in zip(widths[::-1], begins[::-1], strict=True):
        full = (states >= width << 32 - _PRECISION).nonzero()[0]
        if len(full):
            long = states.take(full)
            chunks.append(long & 0xFFFF)
            states[full] = long >> 16
        states, rest = np.divmod(states, width)
        states <<= _PRECISION
        states += rest
        states += begin
    return states, np.concatenate(chunks[::-1])


def _pop(states: Integers, words: Integers, contexts: Integers, tables: Integers) -> tuple[Symbols, int]:
    """Return the symbols, and the number of words read.

    Everything that a step needs is looked up at one index: 4096 times the context plus the state's lowest bits. The
    tables have narrow types, as a short code may have many contexts.
    """
    lanes, used = states.size, 0
    tables = np.vstack([tables, _frequencies(np.zeros(256, np.int64))])  # of the padding of the last row
    often = tables.ravel()
    starts = (np.cumsum(tables, axis=1) - tables).astype(np.uint16).ravel()
    widths = np.repeat(often.astype(np.uint16), often)
    rests = np.tile(np.arange(_WHOLE, dtype=np.uint16), len(tables)) - np.repeat(starts, often)
    slots = _WHOLE * _rows(contexts, lanes, len(tables) - 1)
    for slot in slots:
        slot += states & _WHOLE - 1
        states >>= _PRECISION
        states *= widths.take(slot)
        states += rests.take(slot)
        empty = (states < _LEAST).nonzero()[0]
        if not len(empty):
            continue
        if used + len(empty) > len(words):
            raise WireError("truncated: the code of symbols ends early")
        states[empty] = states.take(empty) << 16 | words[used : used + len(empty)]
        used += len(empty)
    symbols = np.repeat(np.tile(np.arange(256, dtype=np.uint8), len(tables)), often)
    return symbols[slots.ravel()[: contexts.size]], used
