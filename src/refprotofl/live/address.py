"""Where a page is served: a socket, and an address that nobody guesses."""

import secrets
import socket

from refprotofl.errors import InputError

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
