"""The run folder: events, checkpoints, private client states, digests, resume."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.records.atomic_files import (
        create_file,
        ensure_folder,
        make_folders,
        remove_parts,
        sha256,
        sync_files,
        write_whole,
    )
    from refprotofl.records.checkpoint import Checkpoint, Progress
    from refprotofl.records.events import Event, read_events, read_traffic, write_messages, write_traffic
    from refprotofl.records.folder import (
        Busy,
        RunFolder,
        allow_code,
        is_longer,
        read_experiment,
        read_experiment_file,
        refuse_deployed,
        seen_from,
    )
    from refprotofl.records.machine import describe_machine
    from refprotofl.records.manifest import (
        Origin,
        Seconds,
        Stopping,
        read_manifest,
        readable_manifest,
        recorded_numerics,
    )
    from refprotofl.records.relay_traffic import Crossed, read_crossed, write_crossed
    from refprotofl.records.rollback import go_back
    from refprotofl.records.safe_io import (
        check_file,
        check_folder,
        check_run_folder,
        open_file,
        parse_json,
        read_file,
        read_json,
    )
    from refprotofl.records.state_files import load_state, map_state, save_state
    from refprotofl.records.summary import (
        StopRecord,
        Summary,
        build_summary,
        check_summary,
        fedavg_bytes,
        read_summary,
        summary_bytes,
    )
    from refprotofl.records.verify import check_experiment, first_difference, verify_run
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Busy",
    "Checkpoint",
    "Crossed",
    "Event",
    "Origin",
    "Progress",
    "RunFolder",
    "Seconds",
    "StopRecord",
    "Stopping",
    "Summary",
    "allow_code",
    "build_summary",
    "check_experiment",
    "check_file",
    "check_folder",
    "check_run_folder",
    "check_summary",
    "create_file",
    "describe_machine",
    "ensure_folder",
    "fedavg_bytes",
    "first_difference",
    "go_back",
    "is_longer",
    "load_state",
    "make_folders",
    "map_state",
    "open_file",
    "parse_json",
    "read_crossed",
    "read_events",
    "read_experiment",
    "read_experiment_file",
    "read_file",
    "read_json",
    "read_manifest",
    "read_summary",
    "read_traffic",
    "readable_manifest",
    "recorded_numerics",
    "refuse_deployed",
    "remove_parts",
    "save_state",
    "seen_from",
    "sha256",
    "summary_bytes",
    "sync_files",
    "verify_run",
    "write_crossed",
    "write_messages",
    "write_traffic",
    "write_whole",
]
