"""The one error of the wire.

Bytes read front to back, and the variable-length integers in them.

Nothing is read that is not there: each read checks the bytes that are left before anything is allocated.
"""

from refprotofl.core.errors import RunError


class WireError(RunError):
    """A message that cannot be sent, or bytes that are not a message."""


_VARINT_BYTES = 10  # enough for 64 bits, seven a byte


class Reader:
    """A place in a byte string that moves forward."""

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self.position = 0

    @property
    def left(self) -> int:
        """How many bytes are still unread."""
        return len(self._view) - self.position

    def peek(self) -> memoryview:
        """All unread bytes, left in place."""
        return self._view[self.position :]

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        if count > self.left:
            raise WireError(f"truncated: {count} more bytes are announced, {self.left} are left")
        taken = self._view[self.position : self.position + count]
        self.position += count
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        """An unsigned integer below 2**64: seven bits a byte, lowest first, in as few bytes as possible."""
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
        """A string: its length in bytes, then UTF-8."""
        try:
            return str(self.take(self.varint()), "utf-8")
        except UnicodeDecodeError:
            raise WireError("malformed: a text that is not UTF-8") from None


def varint(number: int) -> bytes:
    """What `Reader.varint` reads."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def text(string: str) -> bytes:
    """What `Reader.text` reads."""
    try:
        encoded = string.encode("utf-8")
    except UnicodeEncodeError:
        raise WireError(f"the text {string!a:.60} has no UTF-8 form") from None
    return varint(len(encoded)) + encoded
