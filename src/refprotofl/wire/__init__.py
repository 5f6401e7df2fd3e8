"""Messages between client and server: their encoding as bytes, and the ledger of their costs."""

from refprotofl.wire.codec import Message, Sparse, decode, encode
from refprotofl.wire.ledger import Ledger
from refprotofl.wire.primitives import WireError

__all__ = ["Ledger", "Message", "Sparse", "WireError", "decode", "encode"]
