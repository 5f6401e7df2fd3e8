"""A checkpoint: the server's state, clients' records and a manifest. A round exists only if the manifest says so."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from refprotofl.basics.state import State, digest_run, digest_state
from refprotofl.errors import DataError
from refprotofl.records.files import ensure_folder, remove_parts, sha256, write_whole
from refprotofl.records.states import load_state, save_state

SCHEMA = 2

Records = dict[int, dict[str, Any]]  # of each client that has a state of its own: what the engine finds it by


@dataclass
class Progress:
    """What a run has besides states: where it stands, what it has sent, how good it was last."""

    round: int = 0
    communication: dict[str, Any] = field(default_factory=dict)
    accuracy: dict[str, Any] = field(default_factory=dict)  # the latest evaluation event
    participations: int = 0  # how often a client took part in a round
    seconds: dict[str, float] = field(default_factory=lambda: {"total": 0.0, "train": 0.0, "evaluate": 0.0})


class Checkpoint:
    def __init__(self, folder: Path, initial_digests: Sequence[str]) -> None:
        self.folder = ensure_folder(folder)
        self._initial_digests = initial_digests  # of each client before it ever trained
        self._manifest = read_manifest(folder)
        self.records: Records = {int(client): record for client, record in self._manifest.get("clients", {}).items()}
        remove_parts(self.folder)
        self._remove_others()

    @property
    def progress(self) -> Progress:
        return Progress(**self._manifest["progress"]) if self._manifest else Progress()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the committed round, so that a crash right after the commit loses none."""
        events: list[dict[str, Any]] = self._manifest.get("events", [])
        return events

    @property
    def state_digest(self) -> str:
        digest: str = self._manifest["state_digest"]
        return digest

    def server_state(self) -> State | None:
        if not self._manifest:
            return None
        state = load_state(self.folder / self._manifest["server"]["file"], self._manifest["server"]["digest"])
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}

    def digest(self, server: State, moved: Records) -> str:
        """The state digest with these states in place of the committed ones."""
        digests = list(self._initial_digests)
        for client, record in (self.records | moved).items():
            digests[client] = record["digest"]
        return digest_run(digest_state(server), digests)

    def commit(
        self, server: State, moved: Records, state_digest: str, progress: Progress, events: list[dict[str, Any]]
    ) -> None:
        """Makes the round exist: the manifest is replaced last, in one step, when all that it names is safe."""
        file = f"server-{progress.round}.safetensors"
        save_state(self.folder / file, server)
        records = self.records | moved
        manifest = {
            "schema": SCHEMA,
            "progress": vars(progress),
            "state_digest": state_digest,
            "server": {"file": file, "digest": digest_state(server)},
            "clients": {str(client): records[client] for client in sorted(records)},
            "events": events,
        }
        body = json.dumps(manifest)
        signed = f'{{"sha256": "{sha256(body.encode())}", {body[1:]}'
        write_whole(self.folder / "manifest.json", signed.encode())
        self._manifest, self.records = manifest, records
        self._remove_others()

    def _remove_others(self) -> None:
        """The server's states of earlier rounds, and of a round that never became one."""
        server = self._manifest["server"]["file"] if self._manifest else ""
        for file in self.folder.glob("server-*"):
            if file.name != server:
                file.unlink()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, or nothing before the first committed round."""
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        intact = manifest.pop("sha256", None) == _digest(manifest)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as problem:
        raise DataError(f"The checkpoint's {path} is damaged: {problem}.") from None
    if not intact:
        raise DataError(f"The checkpoint's {path} is damaged: its contents do not have the hash that it names.")
    if manifest.get("schema") != SCHEMA:
        raise DataError(f"The checkpoint's {path} has schema {manifest.get('schema')!r}; this version reads {SCHEMA}.")
    return manifest


def _digest(manifest: dict[str, Any]) -> str:
    return sha256(json.dumps(manifest).encode())
