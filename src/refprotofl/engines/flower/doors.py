"""The doors of the SuperLink: one for devices, one for the operator. Each answers a short list of requests.

Anything else, routes of a later Flower included, is refused before its body is read, and so is a request without a
registered node's signature or the operator's secret. Connections, headers and bodies are bounded in number, size and
time, so that no sender can block the others.
"""

import asyncio
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from refprotofl.engines.flower.records import PART

HEADERS = 10.0  # seconds for a connection's TLS handshake, and again for each request's headers
BODY = 30.0  # seconds for a request's body, to which its size comes at the rate below
SLOWEST = 2000  # bytes per second of the slowest uplink that is waited for
LONGEST_BODY = 900.0  # seconds for the largest body
SMALL, ANNOUNCEMENT = 16_384, 262_144  # bytes of an ordinary request, and of one that announces a message
OBJECT = PART + 65_536  # bytes of one part of a message
UNKNOWN_SHARE = 0.5  # of the connections may be unauthenticated
SPARE_FILES = 128  # files that the process needs besides connections

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Check = Callable[[dict[str, str]], Awaitable[str]]

ACTIVATE = "/v1/fleet/activate-node"
NODE_ROUTES = {  # by path: the most bytes of a body
    ACTIVATE: SMALL,
    "/v1/fleet/deactivate-node": SMALL,
    "/v1/fleet/send-node-heartbeat": SMALL,
    "/v1/fleet/pull-messages": SMALL,
    "/v1/fleet/push-messages": ANNOUNCEMENT,
    "/v1/fleet/get-run": SMALL,
    "/v1/fleet/get-fab": SMALL,
    "/v1/fleet/push-object": OBJECT,
    "/v1/fleet/pull-object": SMALL,
    "/v1/fleet/confirm-message-received": SMALL,
}
REGISTRATION = {"/v1/fleet/register-node": SMALL, "/v1/fleet/unregister-node": SMALL}  # on an insecure site only
OPERATOR_ROUTES = {
    "/v1/control/start-run": ANNOUNCEMENT,
    "/v1/control/stop-run": SMALL,
    "/v1/control/list-runs": SMALL,
    "/v1/control/list-nodes": SMALL,
    "/v1/control/register-node": SMALL,
    "/v1/control/unregister-node": SMALL,
    "/v1/runtime/send-task-heartbeat": SMALL,
    "/v1/runtime/pull-task-input": SMALL,
    "/v1/runtime/push-task-output": ANNOUNCEMENT,
    "/v1/runtime/push-object": OBJECT,
    "/v1/runtime/pull-object": SMALL,
    "/v1/runtime/confirm-message-received": SMALL,
    "/v1/runtime/push-messages": 16 * ANNOUNCEMENT,
    "/v1/runtime/pull-messages": ANNOUNCEMENT,
    "/v1/runtime/get-nodes": SMALL,
}


@dataclass(eq=False)
class Connection:
    """A connection and its state; its requests carry it in their scope."""

    address: str
    since: float = field(default_factory=time.monotonic)
    known: bool = False  # a request over it was authenticated
    close: Callable[[], None] = lambda: None


class Door:
    """Wraps an ASGI app. `check` sees a request's headers and returns its sender, "" if it is not authenticated.

    `routes` has the most bytes of a body for each route. `open_routes` need no authentication. `at_once`
    bounds the requests and connections of one sender at a time.
    """

    def __init__(
        self,
        app: Application,
        routes: Mapping[str, int],
        check: Check,
        at_once: int,
        open_routes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._app, self._routes, self._check = app, routes, check
        self._open, self._at_once = open_routes, at_once
        self._under_way: Counter[str] = Counter()  # requests by sender
        self._connections: dict[str, WeakSet[Connection]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        status, sender, most = await self._admit(scope, headers)
        if status:
            await _refuse(send, status)
            return
        self._under_way[sender] += 1
        try:
            await self._pass_on(scope, receive, send, headers, most)
        finally:
            self._under_way[sender] -= 1
            if not self._under_way[sender]:
                del self._under_way[sender]

    async def _admit(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str, int]:
        """Return the status that a request is refused with (0 if it may pass), its sender, and the most of its body."""
        method, path = scope["method"], scope["path"]
        most = self._open.get(path, 0) if method == "POST" else 0
        sender = ""
        if not most:
            if path not in self._routes or method not in ("POST", "HEAD"):
                return 404, "", 0
            sender, most = await self._check(headers), self._routes[path]
            if not sender:
                return 401, "", 0
            if not self._has_room(sender, scope):
                return 429, "", 0
        length = headers.get("content-length")
        if method == "HEAD":  # how a node asks whether its key is admitted
            return (204 if length in (None, "0") and "transfer-encoding" not in headers else 413), "", 0
        if length is None and "transfer-encoding" not in headers:
            return 411, "", 0
        if length is not None and (not length.isascii() or not length.isdigit() or int(length[:20]) > most):
            return 413, "", 0
        return 0, sender, most

    def _has_room(self, sender: str, scope: Scope) -> bool:
        """Return whether a sender may have one more request, and take note of its connection."""
        connection = scope.get("state", {}).get("connection")
        known = self._connections.setdefault(sender, WeakSet())
        if isinstance(connection, Connection):
            if connection not in known and len(known) >= self._at_once:
                return False
            connection.known = True
            known.add(connection)
        return self._under_way[sender] < self._at_once

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str], most: int) -> None:
        seconds = min(LONGEST_BODY, BODY + int(headers.get("content-length") or most) / SLOWEST)
        deadline = asyncio.get_running_loop().time() + seconds
        left, complete, started, status = most, False, False, 0

        async def receive_bounded() -> dict[str, Any]:
            nonlocal left, complete, status
            try:
                async with asyncio.timeout_at(None if complete else deadline):
                    event = await receive()
            except TimeoutError:
                status = 408
                return {"type": "http.disconnect"}
            left -= len(event.get("body", b""))
            complete = not event.get("more_body", False)
            if left < 0:
                status = 413
                return {"type": "http.disconnect"}
            return event

        async def send_unless_refused(event: dict[str, Any]) -> None:
            nonlocal started
            if not status:
                started = True
                await send(event)

        try:
            await self._app(scope, receive_bounded, send_unless_refused)
        finally:
            if status and not started:
                await _refuse(send, status)


async def _refuse(send: Send, status: int) -> None:
    """Answer with a status code and no detail, and end the connection: its body is not read."""
    headers = [(b"connection", b"close")] + ([] if status == 204 else [(b"content-length", b"0")])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class TimedProtocol(H11Protocol):
    """Uvicorn's HTTP, in which a request's headers have to come within a time; h11 bounds their size (64 KiB)."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        connection: Connection = self.app_state["connection"]
        connection.close = transport.abort
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self.conn.their_state is h11.IDLE:
            self._expect_headers()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._timer = self.loop.call_later(HEADERS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Close a connection that does not send HTTP, without an answer."""
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Listener:
    """Accepts connections within limits. Where they are reached, the oldest that is not known yet makes room."""

    def __init__(self, door: Door, tls: ssl.SSLContext | None, most: int, most_per_address: int) -> None:
        self._config = uvicorn.Config(
            door, lifespan="off", ws="none", log_config=None, access_log=False, server_header=False, proxy_headers=False
        )
        self._config.load()
        self._tls = tls
        self._most, self._most_per_address = most, most_per_address
        self._state = ServerState()
        self._open: dict[Connection, asyncio.Task[None]] = {}

    async def serve(self, listening: socket.socket) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        clock = loop.create_task(self._keep_time())
        try:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError:  # no file left, or a client that has gone already
                    await asyncio.sleep(0.05)
                    continue
                self._take(accepted, _network(str(peer[0])))
        finally:
            clock.cancel()
            for connection, task in list(self._open.items()):
                connection.close()
                task.cancel()

    def _take(self, accepted: socket.socket, address: str) -> None:
        if not self._make_room(address):
            accepted.close()
            return
        connection = Connection(address)
        task = asyncio.get_running_loop().create_task(self._talk(accepted, connection))
        self._open[connection] = task
        task.add_done_callback(lambda _: self._open.pop(connection, None))

    def _make_room(self, address: str) -> bool:
        """Return whether there is room for one more from this address, after the oldest unknown one was closed."""
        here = [one for one in self._open if one.address == address]
        for found, most in ((here, self._most_per_address), (list(self._open), self._most)):
            unknown = [one for one in found if not one.known]
            if len(found) >= most or len(unknown) >= max(1, int(most * UNKNOWN_SHARE)):
                if not unknown:
                    return False
                self._end(unknown[0])
        return True

    def _end(self, connection: Connection) -> None:
        connection.close()
        task = self._open.pop(connection, None)
        if task is not None:
            task.cancel()

    async def _talk(self, accepted: socket.socket, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()

        def build() -> "_Ending":
            return _Ending(gone, self._config, self._state, {"connection": connection}, _loop=loop)

        timeout = None if self._tls is None else HEADERS
        try:
            await loop.connect_accepted_socket(build, accepted, ssl=self._tls, ssl_handshake_timeout=timeout)
            await gone.wait()
        except (OSError, ssl.SSLError, asyncio.CancelledError, TimeoutError):
            with suppress(OSError):
                accepted.close()

    async def _keep_time(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1)


def _network(address: str) -> str:
    """Return what counts as one address: of IPv6, the network of 64 bits that one machine has for itself."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Address(int(found) >> 64 << 64))
    return str(found)


class _Ending(TimedProtocol):
    """Sets an event when its connection has ended."""

    def __init__(self, gone: asyncio.Event, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._gone = gone

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._gone.set()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; OSError if the port is taken."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(address)
    listening.listen(2048)
    listening.setblocking(False)
    return listening


def allow_connections(most: int) -> int:
    """Raise the process's limit of open files as far as it is allowed; return how many connections that permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + SPARE_FILES
    if soft < wanted:
        soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(16, min(most, soft - SPARE_FILES))
