"""Primitives of the format: varints, texts and bit fields, and readers that never read past the end.

Each read checks the bytes that are left before anything is allocated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import RunError


class WireError(RunError):
    """A message that cannot be sent, or bytes that are not a message."""


_VARINT_BYTES = 10  # enough for 64 bits, seven a byte


class Reader:
    """Reads a byte string from front to back."""

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self.position = 0

    @property
    def left(self) -> int:
        """Return the number of unread bytes."""
        return len(self._view) - self.position

    def peek(self) -> memoryview:
        """Return all unread bytes without consuming them."""
        return self._view[self.position :]

    def take(self, count: int) -> memoryview:
        """Consume and return the next `count` bytes."""
        if count > self.left:
            raise WireError(f"truncated: {count} more bytes are announced, {self.left} are left")
        taken = self._view[self.position : self.position + count]
        self.position += count
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        """Read an unsigned integer below 2**64: seven bits per byte, lowest first, in as few bytes as possible."""
        number = 0
        for place in range(_VARINT_BYTES):
            byte = self.byte()
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if (byte == 0 and place > 0) or number >= 1 << 64:
                    break
                return number
        raise WireError("malformed: an integer that is too long or padded")

    def text(self) -> str:
        """Read a string: its length in bytes, then UTF-8."""
        try:
            return str(self.take(self.varint()), "utf-8")
        except UnicodeDecodeError:
            raise WireError("malformed: a text that is not UTF-8") from None


def varint(number: int) -> bytes:
    """Encode an unsigned integer for `Reader.varint`."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def text(string: str) -> bytes:
    """Encode a string for `Reader.text`."""
    try:
        encoded = string.encode("utf-8")
    except UnicodeEncodeError:
        raise WireError(f"the text {string!a:.60} has no UTF-8 form") from None
    return varint(len(encoded)) + encoded


Bits = NDArray[np.uint8]
Integers = NDArray[np.int64]


def bit_length(numbers: Integers) -> Integers:
    """Return `int.bit_length` of each number; exact below 2**53."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def bit_fields(numbers: Integers, widths: Integers) -> Bits:
    """Encode numbers with the given widths in bits.

    All lowest bits come first, then all second bits of the fields that have one, and so on. So whole planes are moved
    at once, and no field is located by reading those before it.
    """
    most = int(widths.max(initial=0))
    numbers, widths = numbers.astype(_carrier(most)), widths.astype(np.uint8)
    planes = [numbers[widths > place] >> place & 1 for place in range(most)]
    return np.concatenate([np.empty(0, np.uint8), *(plane.astype(np.uint8, copy=False) for plane in planes)])


def _carrier(width: int) -> type[np.integer[Any]]:
    """Return an integer type for this many bits: bytes are moved several times as fast as words."""
    return np.uint8 if width <= 8 else np.int64


class BitReader:
    """Reads a byte string bit by bit, the highest bit of a byte first."""

    def __init__(self, data: memoryview) -> None:
        self._bytes = np.frombuffer(data, np.uint8)
        self._position = 0

    @property
    def left(self) -> int:
        return 8 * self._bytes.size - self._position

    @property
    def bytes_read(self) -> int:
        """Return the number of bytes that were read, wholly or in part."""
        return -(-self._position // 8)

    @property
    def padded_with_zeros(self) -> bool:
        """Return True if the unread bits of the last of these bytes are 0."""
        return not self._position % 8 or not self._bytes[self._position // 8] & (0xFF >> self._position % 8)

    def take(self, count: int) -> Bits:
        """Consume and return the next `count` bits."""
        taken = self._peek(count)
        self._position += count
        return taken

    def fields(self, widths: Integers) -> Integers:
        """Read numbers that `bit_fields` encoded with these widths."""
        planes, most = self.take(int(widths.sum())), int(widths.max(initial=0))
        numbers, widths = np.zeros(widths.size, _carrier(most)), widths.astype(np.uint8)
        start = 0
        for place in range(most):
            present = widths > place
            end = start + int(np.count_nonzero(present))
            numbers[present] |= planes[start:end].astype(numbers.dtype, copy=False) << place
            start = end
        return numbers.astype(np.int64, copy=False)

    def ones(self, count: int, longest: int) -> Integers:
        """Read up to the `count`-th 1 within the next `longest` bits; return the offsets of the ones."""
        offsets = np.flatnonzero(self._peek(min(longest, self.left)))[:count].astype(np.int64, copy=False)
        if offsets.size < count:
            raise WireError("truncated: the index code ends early")
        self._position += int(offsets[-1]) + 1 if count else 0
        return offsets

    def _peek(self, count: int) -> Bits:
        if count > self.left:
            raise WireError("truncated: the index code ends early")
        first, skip = divmod(self._position, 8)
        last = -(-(self._position + count) // 8)
        return np.unpackbits(self._bytes[first:last])[skip : skip + count]
