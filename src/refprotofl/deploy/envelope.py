"""The unit that crosses between a deployment's server and its nodes: a JSON header and one byte string."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refprotofl.errors import RefProtoFLError

Header = Mapping[str, Any]


class Unreadable(RefProtoFLError):
    """A message that is not in our format."""


@dataclass(frozen=True)
class Envelope:
    header: Header
    payload: bytes = b""
