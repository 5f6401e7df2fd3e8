"""A watcher beside a run: a process of its own at low priority, so that nothing it does slows the run or ends it."""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from refprotofl.errors import InputError

START = 60.0  # seconds that the process may take until it listens


class Beside:
    """Serves a run folder until it is closed, or this process is gone."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._pipe: Connection[Any, Any] = ours
        self._process = context.Process(target=serve_beside, args=(theirs, str(folder), port), daemon=True)
        self._process.start()
        theirs.close()
        self.address = self._await()

    def _await(self) -> str:
        try:
            told = self._pipe.recv_bytes().decode() if self._pipe.poll(START) else "it did not start"
        except EOFError:
            told = "it did not start"
        if not told.startswith("http://"):
            self.close()
            raise InputError(f"The page cannot be served: {told}")
        return told

    def close(self) -> None:
        self._pipe.close()
        self._process.join(2)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(2)


def serve_beside(pipe: "Connection[Any, Any]", folder: str, port: int) -> None:
    """What the process does: it ends when the pipe does."""
    # Here, because the run's own process needs none of it.
    from refprotofl.errors import RefProtoFLError
    from refprotofl.live.following import Following
    from refprotofl.live.server import LiveServer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's
    if hasattr(os, "nice"):
        os.nice(10)
    try:
        server = LiveServer(Following(Path(folder)), port=port)
    except RefProtoFLError as problem:
        pipe.send_bytes(str(problem).encode())
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send_bytes(server.address.encode())
    with suppress(EOFError, OSError):
        pipe.recv_bytes()
    server.close()
