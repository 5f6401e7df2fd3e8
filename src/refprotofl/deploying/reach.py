"""Whether a node's server answers with the certificate that the kit knows, and whether their clocks agree."""

import datetime
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from refprotofl.deploying.findings import Finding

PATIENCE = 10.0  # seconds
AHEAD, BEHIND = 5, 305  # seconds by which Flower lets the time stamp of a node's signature be off


def reach(kit: Path, host: str, port: int) -> Iterator[Finding]:
    """Two findings, or the one why there is no server to be asked for the time."""
    secure = (kit / "ca.crt").exists()
    try:
        line = _line(kit / "ca.crt" if secure else None, host, port)
        line.connect()
    except ssl.SSLCertVerificationError as problem:
        yield Finding(
            "server",
            False,
            f"{host}:{port} has no certificate that ca.crt vouches for ({problem.verify_message}). Is this the kit of "
            f"that server, and is the clock right? It says {_now()}.",
        )
        return
    except (OSError, ValueError) as problem:
        yield Finding("server", False, f"{host}:{port} cannot be reached ({problem}): is the server started?")
        return
    with closing(line):
        yield Finding("server", True, f"{host}:{port} answers{_trust(line)}.")
        yield _clock(line, secure)


def _line(authority: Path | None, host: str, port: int) -> HTTPConnection:
    if authority is None:
        return HTTPConnection(host, port, timeout=PATIENCE)
    context = ssl.create_default_context(cafile=str(authority))
    return HTTPSConnection(host, port, timeout=PATIENCE, context=context)


def _trust(line: HTTPConnection) -> str:
    if not isinstance(line.sock, ssl.SSLSocket):
        return ", without TLS: anyone on the way reads along"
    ends = ssl.cert_time_to_seconds(str((line.sock.getpeercert() or {}).get("notAfter")))
    return f"; its certificate is valid for {round((ends - time.time()) / 86_400)} more days"


def _clock(line: HTTPConnection, signs: bool) -> Finding:
    """By the date that the server's HTTP answers have, whatever it answers; it matters where nodes sign."""
    try:
        asked = time.time()
        line.request("HEAD", "/")
        told = line.getresponse().getheader("Date")
        theirs = parsedate_to_datetime(told or "").timestamp() + 0.5  # it has whole seconds
    except (OSError, HTTPException, ValueError):
        words = f"the server does not tell the time, so this clock could not be compared. It says {_now()}"
        return Finding("clock", None, f"{words}; Flower wants it less than {AHEAD} s ahead and {BEHIND} s behind.")
    ahead = (asked + time.time()) / 2 - theirs
    fine = not signs or -BEHIND < ahead < AHEAD
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    advice = "" if fine else f"; Flower wants less than {AHEAD} s ahead and {BEHIND} s behind: set it, best by NTP"
    return Finding("clock", fine, f"{words}{advice}.")


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
