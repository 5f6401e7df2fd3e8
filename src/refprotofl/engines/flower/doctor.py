"""Findings of `deploy doctor` about a node's SuperLink: the server, its certificate, the clocks, the admission."""

import datetime
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from refprotofl.deploy.certificates import validity_problem
from refprotofl.deploy.doctor import PATIENCE, Finding
from refprotofl.deploy.kits import AUTHORITY, PUBLIC_KEY, load_key
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.engines.flower.doors import ACTIVATE
from refprotofl.engines.flower.internals import signed_headers

AHEAD, BEHIND = 5, 305  # seconds by which Flower lets the time stamp of a node's signature be off

# Returns the headers that authenticate a node, made at the moment of a request.
Sign = Callable[[], Mapping[str, str]]


def reach_superlink(kit: Path, config: NodeConfig) -> Iterator[Finding]:
    """Yield the findings about the server of a node."""
    yield from reach(kit, config.name, config.address, lambda: signed_headers(load_key(kit, config.name)))


def reach(kit: Path, name: str, address: tuple[str, int], sign: Sign) -> Iterator[Finding]:
    """Yield findings about the server, the admission and the clock; only the first if there is no server to ask."""
    authority = kit / AUTHORITY
    secure = authority.exists()
    if secure and (problem := validity_problem(authority)):
        yield Finding("server", False, problem)
        return
    host, port = address
    try:
        line = _connected(authority if secure else None, host, port)
    except ssl.SSLCertVerificationError as problem:
        yield Finding("server", False, _describe_untrusted(host, port, problem))
        return
    except (OSError, ValueError) as problem:
        yield Finding("server", False, f"{host}:{port} cannot be reached ({problem}). Is the server running?")
        return
    with closing(line):
        yield Finding("server", True, f"{host}:{port} answers{_trust(line)}.")
        yield _clock(line, secure)
    if secure:
        yield _admission(_line(authority, host, port), kit, name, sign)


def _describe_untrusted(host: str, port: int, problem: ssl.SSLCertVerificationError) -> str:
    if "expired" in problem.verify_message:
        return f"The certificate of {host}:{port} has expired: the operator runs refprotofl deploy renew."
    return (
        f"{host}:{port} has no certificate signed by ca.crt ({problem.verify_message}). Is this the kit of that "
        f"server, and is the clock right? It says {_now()}."
    )


def _admission(line: HTTPConnection, kit: Path, name: str, sign: Sign) -> Finding:
    """Ask for the path that answers a signed HEAD request with 401 unless the key is admitted."""
    try:
        with closing(line):
            line.request("HEAD", ACTIVATE, headers=dict(sign()))
            status = line.getresponse().status
    except (OSError, HTTPException) as problem:
        return Finding("admission", None, f"could not be checked ({type(problem).__name__}): try again.")
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
        return ", without TLS: the traffic can be read by anyone on the way"
    ends = ssl.cert_time_to_seconds(str((line.sock.getpeercert() or {}).get("notAfter")))
    return f"; its certificate is valid for {round((ends - time.time()) / 86_400)} more days"


def _clock(line: HTTPConnection, signs: bool) -> Finding:
    """Compare the clock with the date of the server's HTTP answers; it matters if nodes sign requests."""
    try:
        asked = time.time()
        line.request("HEAD", "/")
        date = line.getresponse().getheader("Date")
        theirs = parsedate_to_datetime(date or "").timestamp() + 0.5  # the date has whole seconds
    except (OSError, HTTPException, ValueError):
        words = f"the server sends no date, so this clock could not be compared. It says {_now()}"
        return Finding("clock", None, f"{words}; Flower allows less than {AHEAD} s ahead and {BEHIND} s behind.")
    ahead = (asked + time.time()) / 2 - theirs
    fine = not signs or -BEHIND < ahead < AHEAD
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    advice = (
        "" if fine else f"; Flower allows less than {AHEAD} s ahead and {BEHIND} s behind: set the clock, best by NTP"
    )
    return Finding("clock", fine, f"{words}{advice}.")


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
