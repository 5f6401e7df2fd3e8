"""Findings about a node's server: its certificate, whether it admits the node's key, and its clock."""

import datetime
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from refprotofl.deploy.certificates import validity_problem
from refprotofl.deploy.kits import AUTHORITY, PUBLIC_KEY

PATIENCE = 10.0  # seconds
AHEAD, BEHIND = 5, 305  # seconds by which Flower lets the time stamp of a node's signature be off


@dataclass(frozen=True)
class Finding:
    """What `deploy doctor` found about one subject. `fine` is None where it could not be checked."""

    subject: str
    fine: bool | None
    words: str


# Returns the headers by which a node shows who it is, made at the moment of a request.
Sign = Callable[[], Mapping[str, str]]


def reach(kit: Path, name: str, address: tuple[str, int], sign: Sign, admission_path: str) -> Iterator[Finding]:
    """Yield findings about the server, the admission and the clock; only the first if there is no server to ask.

    `admission_path`: where the server answers a signed HEAD request with 401 unless it admits the key.
    """
    authority = kit / AUTHORITY
    secure = authority.exists()
    if secure and (problem := validity_problem(authority)):
        yield Finding("server", False, problem)
        return
    host, port = address
    try:
        line = _connected(authority if secure else None, host, port)
    except ssl.SSLCertVerificationError as problem:
        yield Finding("server", False, _distrust(host, port, problem))
        return
    except (OSError, ValueError) as problem:
        yield Finding("server", False, f"{host}:{port} cannot be reached ({problem}): is the server started?")
        return
    with closing(line):
        yield Finding("server", True, f"{host}:{port} answers{_trust(line)}.")
        yield _clock(line, secure)
    if secure:
        yield _admission(_line(authority, host, port), kit, name, sign, admission_path)


def _distrust(host: str, port: int, problem: ssl.SSLCertVerificationError) -> str:
    if "expired" in problem.verify_message:
        return f"The certificate of {host}:{port} has expired: the operator makes a new site and new kits."
    return (
        f"{host}:{port} has no certificate that ca.crt vouches for ({problem.verify_message}). Is this the kit of that "
        f"server, and is the clock right? It says {_now()}."
    )


def _admission(line: HTTPConnection, kit: Path, name: str, sign: Sign, path: str) -> Finding:
    try:
        with closing(line):
            line.request("HEAD", path, headers=dict(sign()))
            status = line.getresponse().status
    except (OSError, HTTPException) as problem:
        return Finding("admission", None, f"could not be asked for ({type(problem).__name__}): try again.")
    if status == 401:
        return Finding(
            "admission",
            False,
            f"this node's key is not admitted: send {kit.absolute() / PUBLIC_KEY} to the operator, who runs refprotofl "
            f"deploy admit SITE {name or 'NAME'} {PUBLIC_KEY}.",
        )
    if status != 204:
        return Finding("admission", None, f"the server answers with HTTP {status}: is it a refprotofl site?")
    return Finding("admission", True, "this node's key is admitted.")


def _line(authority: Path | None, host: str, port: int) -> HTTPConnection:
    if authority is None:
        return HTTPConnection(host, port, timeout=PATIENCE)
    context = ssl.create_default_context(cafile=str(authority))
    return HTTPSConnection(host, port, timeout=PATIENCE, context=context)


def _connected(authority: Path | None, host: str, port: int) -> HTTPConnection:
    line = _line(authority, host, port)
    try:
        line.connect()
    except BaseException:
        line.close()
        raise
    return line


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
