"""The one error of the wire."""

from refprotofl.errors import RunError


class WireError(RunError):
    """A message that cannot be sent, or bytes that are not a message."""
