"""A watcher beside a run: a process of its own at low priority, so that nothing it does slows the run or ends it."""

import multiprocessing
import os
import signal
import socket
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from refprotofl.report.live.server import listen, new_token, page_address

PATIENCE = 2.0  # seconds that the process has to end by itself


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
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(PATIENCE)


def serve_beside(pipe: "Connection[Any, Any]", listening: socket.socket, token: str, folder: str) -> None:
    """What the process does: it ends when the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's
    if hasattr(os, "nice"):
        os.nice(10)
    # Here, because the run's own process needs none of it.
    from refprotofl.report.live.follow import Following
    from refprotofl.report.live.server import LiveServer

    server = LiveServer(Following(Path(folder)), "127.0.0.1", listening, token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.recv_bytes()
    server.close()
