"""Names and addresses of machines, as a user types them and as they stand before a port."""

import re
from ipaddress import IPv6Address, ip_address

from refprotofl.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")  # this machine, to itself
LONGEST = 253  # characters of a name
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NUMBERS = re.compile(r"[0-9.]+")  # what could be an address only


def read_host(text: str, option: str) -> str:
    """A name, or an address without brackets."""
    inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in inside:
        if not _is_address6(inside):
            raise InputError(
                f"{option} {text}: it has a colon and is no IPv6 address; give the name or the address alone."
            )
    elif inside != text or not (_is_address(text) if _NUMBERS.fullmatch(text) else _is_name(text)):
        raise InputError(f"{option} {text!r}: it is neither a name nor an address.")
    return inside


def with_port(host: str, port: int) -> str:
    """An IPv6 address stands in brackets, as its own colons are not the port's."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_name(text: str) -> bool:
    return len(text) <= LONGEST and _NAME.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_address6(text: str) -> bool:
    """One that every machine understands: `%eth0` behind it is this machine's own affair."""
    try:
        return IPv6Address(text).scope_id is None
    except ValueError:
        return False
