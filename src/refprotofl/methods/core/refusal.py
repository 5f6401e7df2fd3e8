"""Why an answer does not count: it is not what was asked for, or its client's store is lost."""

from refprotofl.errors import RefProtoFLError
from refprotofl.wire import Message

LOST = "lost"  # a client's answer when its store does not hold what the request builds on


def is_lost(answer: Message) -> bool:
    """Whether a client says that its store is lost: alone, and nothing beside it."""
    return answer.keys() == {LOST} and answer[LOST] is True


class Refused(RefProtoFLError):
    """A message is well formed, but not what the experiment asks for."""


class Lost(Exception):
    """A client's store does not hold what the request builds on; the client answers that it is lost."""
