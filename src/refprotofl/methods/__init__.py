"""Methods by name: each is a server and a client."""

import difflib
from typing import NamedTuple

from refprotofl.errors import InputError
from refprotofl.methods.base import Client, Server
from refprotofl.methods.local import LocalClient, LocalServer
from refprotofl.methods.refprotofl import RefProtoClient, RefProtoServer


class Method(NamedTuple):
    server: type[Server]
    client: type[Client]


METHODS = {
    "refprotofl": Method(RefProtoServer, RefProtoClient),
    "local": Method(LocalServer, LocalClient),
}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}."
    raise InputError(f"There is no method {name!r}; {hint}")
