"""Messages between client and server as bytes, and the account of what they cost."""

from refprotofl.wire.codec import Message, Sparse, decode, encode
from refprotofl.wire.ledger import Ledger
from refprotofl.wire.primitives import WireError

__all__ = ["Ledger", "Message", "Sparse", "WireError", "decode", "encode"]
