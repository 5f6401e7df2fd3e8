"""Messages between client and server: their encoding as bytes, and the ledger of their costs."""

from refprotofl.wire.budget import largest_within
from refprotofl.wire.codec import Message, Sparse, decode, encode
from refprotofl.wire.indices import decode_indices, encode_indices
from refprotofl.wire.ledger import Counted, Direction, Kind, Ledger, Purpose, Totals
from refprotofl.wire.primitives import Reader, WireError

__all__ = [
    "Counted",
    "Direction",
    "Kind",
    "Ledger",
    "Message",
    "Purpose",
    "Reader",
    "Sparse",
    "Totals",
    "WireError",
    "decode",
    "decode_indices",
    "encode",
    "encode_indices",
    "largest_within",
]
