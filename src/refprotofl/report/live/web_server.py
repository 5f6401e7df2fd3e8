"""Where a page is served: a socket, and an address that nobody guesses.

The page over HTTP on this machine: one token, one host, GET alone, and no more lookers-on than it can serve.

A connection is *waiting* until its request has arrived as a whole, for which it has a few seconds in all. When too many
wait, the one that has waited longest is closed, so that a new one always gets in. Only a request with the token takes
one of the places that are served."""

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

from refprotofl.core.errors import InputError
from refprotofl.core.units import read_whole
from refprotofl.report.live.follower import Following
from refprotofl.report.page.html import as_live, live_policy

BACKLOG = 32


def new_token() -> str:
    return secrets.token_urlsafe(24)


def listen(host: str, port: int) -> socket.socket:
    """Port 0 is any that is free."""
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


MOST_CONNECTIONS = 16  # that are served at a time
MOST_WAITING = 64  # connections without a whole request
ARRIVAL = 5.0  # seconds in all that a request may take to arrive, from the connection or the last answer on
MOST_HEADERS = 64 << 10  # bytes of a request, the server's own buffer included
PATIENCE = 30.0  # seconds in all that a reader may take for an answer, or for an event
BEAT = 15.0  # seconds after which a silent stream says that it is still there
LONGEST_PATH = 512


class LiveServer(ThreadingHTTPServer):
    """Serves one place at http://HOST:PORT/TOKEN/ until it is closed."""

    daemon_threads = True

    def __init__(self, following: Following, host: str, listening: socket.socket, token: str) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.following = following
        self.token = token
        self.closing = threading.Event()
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
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
        """From now on a request is waited for; who has waited longest makes room for it."""
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
    def place(self, connection: socket.socket) -> Iterator[bool]:
        """A place to be served in, if there is one left: who is served stays served."""
        self._arrived(connection)
        free = self._places.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up is no news."""

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


class _Arriving(io.RawIOBase):
    """What a connection sends: a request by a deadline, however slowly it comes, and of a bounded size."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.expect()

    def expect(self) -> None:
        """The next request may begin."""
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
        """The terminal is the run's."""

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
        with self.server.place(self.connection) as free:
            if free:
                getattr(self, self._answers[name])()
            else:
                self.close_connection = True

    def send_response(self, code: int, message: str | None = None) -> None:
        self.connection.settimeout(PATIENCE)  # of each write as a whole
        super().send_response(code, message)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Without a word of what was asked for."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code))

    def _allowed(self) -> str | None:
        """The name of what is asked for, if whoever asks knows the token and means this server."""
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
        html = as_live(self.server.following.page(), nonce).encode()
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", html, live_policy(nonce))

    def _data(self) -> None:
        self._send(HTTPStatus.OK, "application/json", self.server.following.page_json())

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
        """Server-sent events: the id of each is its line in events.jsonl, after which a reader goes on."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream", "default-src 'none'")
        self.send_header("Connection", "close")
        self.end_headers()
        silent = 0.0
        try:
            self.wfile.write(b"retry: 2000\n\n")
            for line, name, data in self.server.following.news(self._after(), self.server.closing):
                if name:
                    number = f"id: {line}\n" if line else ""
                    self.wfile.write(f"{number}event: {name}\ndata: {data}\n\n".encode())
                    silent = 0.0
                else:
                    silent += 0.5
                    if silent >= BEAT:
                        self.wfile.write(b": still here\n\n")
                        silent = 0.0
        except OSError:
            return  # nobody reads on

    def _after(self) -> int:
        return read_whole(self.headers.get("Last-Event-ID", "0")) or 0


ENDING = 2.0  # seconds that the process has to end by itself


class Beside:
    """Serves a run folder until it is closed, or this process is gone.

    It listens at once; who comes before the process is up waits. The run does not.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        token, listening = new_token(), listen("127.0.0.1", port)
        self.address = page_address("127.0.0.1", listening, token)
        context = multiprocessing.get_context("spawn")
        theirs, self._ours = context.Pipe(duplex=False)
        self._process = context.Process(
            target=serve_beside, args=(theirs, listening, token, str(folder.absolute())), daemon=True
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


def serve_beside(pipe: "Connection[Any, Any]", listening: socket.socket, token: str, folder: str) -> None:
    """What the process does: it ends when the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's
    if hasattr(os, "nice"):
        os.nice(10)
    # Here, because the run's own process needs none of it.
    from refprotofl.report.live.follower import Following
    from refprotofl.report.live.web_server import LiveServer

    server = LiveServer(Following(Path(folder)), "127.0.0.1", listening, token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.recv_bytes()
    server.close()
