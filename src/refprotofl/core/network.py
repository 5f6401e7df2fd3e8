"""Host names and addresses, and network links: the rates and the latency between a client and the server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from refprotofl.core.errors import InputError
from refprotofl.core.units import read_whole

LOOPBACK = ("localhost", "127.0.0.1", "::1")  # this machine, to itself
LONGEST = 253  # characters of a name
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NUMBERS = re.compile(r"[0-9.]+")  # can only be an address


def read_host(text: str, option: str) -> str:
    """Return a host name, or an address without brackets."""
    inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in inside:
        if not _is_address6(inside):
            raise InputError(
                f"{option} {text}: it has a colon and is no IPv6 address. Give the name or the address without a port."
            )
    elif inside != text or not (_is_address(text) if _NUMBERS.fullmatch(text) else _is_name(text)):
        raise InputError(f"{option} {text!r}: it is neither a host name nor an address.")
    return inside


def with_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
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
    """Return True for an IPv6 address without a scope such as `%eth0`, which only this machine understands."""
    try:
        return IPv6Address(text).scope_id is None
    except ValueError:
        return False


@dataclass(frozen=True)
class Link:
    """The link of one client."""

    up: float  # bits per second from the client
    down: float  # bits per second to the client
    latency: float  # seconds that a message takes in one direction

    def seconds(self, sent_up: float, sent_down: float) -> float:
        """Return the time for a request down and its answer up, in bytes; a message of 0 bytes takes no time."""
        down = self.latency + 8 * sent_down / self.down if sent_down else 0.0
        return down + (self.latency + 8 * sent_up / self.up if sent_up else 0.0)


# Typical rates in use, not the best that the standards allow.
PROFILES: Final[Mapping[str, Link]] = {
    "wifi": Link(up=40e6, down=100e6, latency=0.005),  # 802.11ac at home, behind a fixed line
    "lte": Link(up=10e6, down=30e6, latency=0.03),  # category 4, as cells are shared
    "nb-iot": Link(up=20e3, down=25e3, latency=1.6),  # LTE Cat-NB1, single tone to multi tone
    "lora": Link(up=5.47e3, down=5.47e3, latency=1.0),  # LoRaWAN SF7 at 125 kHz, with no limit on its duty cycle
}

_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*([kMG]?)(bit/s|bps|B/s)", re.ASCII)
_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(ms|s)", re.ASCII)
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_ALLOWED = f'allowed: {", ".join(PROFILES)} or "up=1Mbit/s,down=5Mbit/s,latency=50ms"'
_ALLOWED_FOR_SOME = (
    f"{_ALLOWED}; links of single clients follow after semicolons, by number: "
    '"wifi;3:lte;4:up=1Mbit/s,down=5Mbit/s,latency=50ms"'
)


@dataclass(frozen=True)
class Links:
    """The links of all clients: a common one, and those of single clients by number."""

    text: str  # as it was typed
    common: Link
    own: Mapping[int, Link]

    def of(self, client: int) -> Link:
        return self.own.get(client, self.common)


def read_links(text: str, option: str = "--link") -> Links:
    """Read a profile such as `lte` or a link by its rates, and links of single clients after semicolons."""
    common: list[Link] = []
    own: dict[int, Link] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        client, colon, words = part.partition(":")
        number = read_whole(client.strip()) if colon else None
        link = _known_link(part if number is None else words.strip())
        if link is None:
            raise InputError(f"{option} {text}: {_ALLOWED_FOR_SOME}.")
        if number is None:
            common.append(link)
        else:
            own[number] = link
    if len(common) != 1:
        raise InputError(f"{option} {text}: give exactly one link for all other clients; {_ALLOWED_FOR_SOME}.")
    return Links(text, common[0], own)


def read_link(text: str, option: str = "--link") -> Link:
    """Read one link for all clients."""
    link = _known_link(text.strip())
    if link is None:
        raise InputError(f"{option} {text}: give one link for all clients; {_ALLOWED}.")
    return link


def _known_link(text: str) -> Link | None:
    """Return the link of a profile or of rates; None for anything else."""
    if text in PROFILES:
        return PROFILES[text]
    given = dict(one.strip().partition("=")[::2] for one in text.split(","))
    up, down = (_bits(_RATE.fullmatch(given.get(name, "").strip())) for name in ("up", "down"))
    latency = _TIME.fullmatch(given.get("latency", "0s").strip())
    if not set(given) <= {"up", "down", "latency"} or latency is None or not (up and down):
        return None
    return Link(up, down, float(latency[1]) * (1e-3 if latency[2] == "ms" else 1))


def _bits(found: "re.Match[str] | None") -> float:
    """Return bits per second; 0 where the text is not a rate."""
    return 0.0 if found is None else float(found[1]) * _PREFIXES[found[2]] * (8 if found[3] == "B/s" else 1)
