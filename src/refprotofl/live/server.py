"""The page over HTTP on this machine: one token, one host, GET alone, and no more lookers-on than it can serve."""

import secrets
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from refprotofl.basics.units import read_whole
from refprotofl.live.address import in_address, page_address
from refprotofl.live.following import Following
from refprotofl.report.page.html import as_live, live_policy

MOST_CONNECTIONS = 16
PATIENCE = 30.0  # seconds that a request may take to arrive, and a reader to read
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
        names = {host, "127.0.0.1", "localhost"} if host in ("127.0.0.1", "localhost") else {in_address(host)}
        self.hosts = {f"{name}:{listening.getsockname()[1]}".lower() for name in names}
        self.address = page_address(host, listening, token)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A connection beyond the last place is closed at once: who is served stays served."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up is no news."""

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    server_version, sys_version = "refprotofl", ""
    _answers: ClassVar[dict[str, str]] = {"": "_page", "page.json": "_data", "events": "_events"}

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is the run's."""

    def do_GET(self) -> None:
        name = self._allowed()
        if name is not None:
            getattr(self, self._answers[name])()

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
