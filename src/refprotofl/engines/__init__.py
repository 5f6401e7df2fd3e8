"""Engines: they run the clients. Every engine gives them encoded bytes and takes encoded bytes back."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.engines.engine import (
        CODES,
        MEANINGS,
        Code,
        Engine,
        EngineInfo,
        Record,
        Request,
        Result,
        start_ahead,
    )
    from refprotofl.engines.local.engine import LocalEngine
    from refprotofl.engines.local.host import Answering, ClientHost, InProcess, Task, code_of
    from refprotofl.engines.local.logs import ClientLogs
    from refprotofl.engines.local.store import (
        ClientStore,
        DiskBlobStore,
        Location,
        check_state,
        prepare_blobs,
        prepare_states,
        read_if_here,
        remove_others,
    )
    from refprotofl.engines.local.workers import WorkerProcesses
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "CODES",
    "MEANINGS",
    "Answering",
    "ClientHost",
    "ClientLogs",
    "ClientStore",
    "Code",
    "DiskBlobStore",
    "Engine",
    "EngineInfo",
    "InProcess",
    "LocalEngine",
    "Location",
    "Record",
    "Request",
    "Result",
    "Task",
    "WorkerProcesses",
    "check_state",
    "code_of",
    "prepare_blobs",
    "prepare_states",
    "read_if_here",
    "remove_others",
    "start_ahead",
]
