"""The live page over HTTP: one random token, one host, GET only, a bounded number of viewers.

A connection is *waiting* until its whole request has arrived, within a few seconds. When too many are waiting, the one
that has waited longest is closed, so that a new one can always connect. Only a request with the token takes one of the
served connections.
"""

import io
import multiprocessing
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from refprotofl.core import InputError, read_whole
from refprotofl.report.live.follower import Follower
from refprotofl.report.page.html import as_live, live_policy

BACKLOG = 32


def new_token() -> str:
    return secrets.token_urlsafe(24)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise InputError(f"Cannot listen at {host}, port {port}: {reason}. Choose another --port.") from None


def page_address(host: str, listening: socket.socket, token: str) -> str:
    return f"http://{in_address(host)}:{listening.getsockname()[1]}/{token}/"


def in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


MOST_CONNECTIONS = 16  # served at a time
MOST_WAITING = 64  # connections without a whole request
ARRIVAL = 5.0  # seconds for a whole request to arrive, from the connection or the last answer on
MOST_HEADERS = 64 << 10  # bytes of a request, the server's own buffer included
PATIENCE = 30.0  # seconds that a viewer may take to receive an answer or an event
KEEP_ALIVE = 15.0  # seconds of silence after which an event stream sends a comment
LONGEST_PATH = 512


class LiveServer(ThreadingHTTPServer):
    """Serves one page at http://HOST:PORT/TOKEN/ until it is closed."""

    daemon_threads = True

    def __init__(self, follower: Follower, host: str, listening: socket.socket, token: str) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.follower = follower
        self.token = token
        self.closing = threading.Event()
        self._served = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._waiting: dict[socket.socket, None] = {}  # in the order in which they began to wait
        self._lock = threading.Lock()
        names = {host, "127.0.0.1", "localhost"} if host in ("127.0.0.1", "localhost") else {in_address(host)}
        self.hosts = {f"{name}:{listening.getsockname()[1]}".lower() for name in names}
        self.address = page_address(host, listening, token)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.wait(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._arrived(request)

    def wait(self, connection: socket.socket) -> None:
        """Register a connection as waiting; beyond the limit, close the one that has waited longest."""
        with self._lock:
            self._waiting.setdefault(connection)
            oldest = next(iter(self._waiting)) if len(self._waiting) > MOST_WAITING else None
            if oldest is not None:
                del self._waiting[oldest]
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # which ends the thread that reads from it

    def _arrived(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(connection, None)

    @contextmanager
    def serving(self, connection: socket.socket) -> Iterator[bool]:
        """Take one of the served connections, if one is free; connections in use are never closed."""
        self._arrived(connection)
        free = self._served.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._served.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


class _Arriving(io.RawIOBase):
    """The input of a connection: each request has a deadline and a size limit."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.expect()

    def expect(self) -> None:
        """Start the deadline and the size limit of the next request."""
        self._deadline, self._left = time.monotonic() + ARRIVAL, MOST_HEADERS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0 or self._left <= 0:
            raise TimeoutError
        self._connection.settimeout(remaining)
        received = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= received
        return received


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "refprotofl", ""
    _answers: ClassVar[dict[str, str]] = {"": "_page", "page.json": "_data", "events": "_events"}

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the run."""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._arriving = _Arriving(self.connection)
        self.rfile = io.BufferedReader(self._arriving)

    def handle_one_request(self) -> None:
        self.server.wait(self.connection)
        self._arriving.expect()
        super().handle_one_request()

    def do_GET(self) -> None:
        name = self._allowed()
        if name is None:
            return
        with self.server.serving(self.connection) as free:
            if free:
                getattr(self, self._answers[name])()
            else:
                self.close_connection = True

    def send_response(self, code: int, message: str | None = None) -> None:
        self.connection.settimeout(PATIENCE)  # of each write as a whole
        super().send_response(code, message)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an error without echoing the request."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code))

    def _allowed(self) -> str | None:
        """Return the resource that is requested, if the request has the token and names this server."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        token, slash, name = urlsplit(self.path[:LONGEST_PATH]).path.removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if not known or not slash or name not in self._answers or len(self.path) > LONGEST_PATH:
            self._refuse(HTTPStatus.NOT_FOUND)
            return None
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._refuse(HTTPStatus.FORBIDDEN)
            return None
        return name

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._send(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())

    def _page(self) -> None:
        nonce = secrets.token_urlsafe(18)
        html = as_live(self.server.follower.page(), nonce).encode()
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", html, live_policy(nonce))

    def _data(self) -> None:
        self._send(HTTPStatus.OK, "application/json", self.server.follower.page_json())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        self._headers(kind, policy)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(body)

    def _headers(self, kind: str, policy: str) -> None:
        for name, value in {
            "Content-Type": kind,
            "Content-Security-Policy": policy,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)

    def _events(self) -> None:
        """Send events; the id of each is its line in events.jsonl, from which a viewer resumes."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream", "default-src 'none'")
        self.send_header("Connection", "close")
        self.end_headers()
        silent = 0.0
        try:
            self.wfile.write(b"retry: 2000\n\n")
            for line, name, data in self.server.follower.news(self._after(), self.server.closing):
                if name:
                    number = f"id: {line}\n" if line else ""
                    self.wfile.write(f"{number}event: {name}\ndata: {data}\n\n".encode())
                    silent = 0.0
                else:
                    silent += 0.5
                    if silent >= KEEP_ALIVE:
                        self.wfile.write(b": still here\n\n")
                        silent = 0.0
        except OSError:
            return  # the viewer has disconnected

    def _after(self) -> int:
        return read_whole(self.headers.get("Last-Event-ID", "0")) or 0


ENDING = 2.0  # seconds for the process to end by itself


class BackgroundServer:
    """Serves a run folder from a separate low-priority process, until it is closed or this process ends.

    It listens at once; viewers that connect before the process is up wait. The run does not.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        token, listening = new_token(), listen("127.0.0.1", port)
        self.address = page_address("127.0.0.1", listening, token)
        context = multiprocessing.get_context("spawn")
        theirs, self._ours = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_serve_in_background, args=(theirs, listening, token, str(folder.absolute())), daemon=True
        )
        self._process.start()
        theirs.close()
        listening.close()

    def close(self) -> None:
        self._ours.close()
        self._process.join(ENDING)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(ENDING)


def _serve_in_background(pipe: "Connection[Any, Any]", listening: socket.socket, token: str, folder: str) -> None:
    """Serve in the background process until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's
    if hasattr(os, "nice"):
        os.nice(10)
    server = LiveServer(Follower(Path(folder)), "127.0.0.1", listening, token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.recv_bytes()
    server.close()
