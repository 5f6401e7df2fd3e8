"""A checkpoint: the server's state, clients' records and a manifest. A round is committed once `manifest.json` has it.

The checkpoints of the last rounds are kept, each with its own manifest.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from refprotofl.core import DataError, State, digest_run, digest_state
from refprotofl.records.atomic_files import ensure_folder, remove_parts, write_whole
from refprotofl.records.manifest import (
    CURRENT,
    KEPT,
    SCHEMA,
    SERVER_FILES,
    Marks,
    Rollback,
    Stopping,
    kept_name,
    kept_rounds,
    read_manifest,
    signed,
)
from refprotofl.records.safe_io import remove_named
from refprotofl.records.state_files import load_state, save_state

__all__ = ["Checkpoint", "Progress", "Records", "place_digests", "read_manifest"]

_STATES = re.compile(r"(server|observed)-\d+\.safetensors")

Records = dict[int, dict[str, Any]]  # by client with a private state: the engine's record of its location


@dataclass
class Progress:
    """Progress of a run in addition to its states: rounds, traffic, the last evaluation, seconds."""

    round: int = 0
    communication: dict[str, Any] = field(default_factory=dict)
    accuracy: dict[str, Any] = field(default_factory=dict)  # the latest evaluation event
    participations: int = 0  # how often a client took part in a round
    steps: int | None = 0  # of the clients' optimisers; None where the server does not know them
    moves: dict[str, list[float]] = field(
        default_factory=dict
    )  # norms of the server's steps in the last rounds, by tensor
    # Clients with unusually large answers in the last rounds, within max-step: the round, and the ratio to the median.
    suspects: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"total": 0.0, "train": 0.0, "evaluate": 0.0})
    stopping: Stopping | None = None  # with [stop], from the first evaluation on

    @property
    def stopped(self) -> bool:
        """True if the run ended before its last round."""
        return self.stopping is not None and bool(self.stopping["reason"])

    @classmethod
    def recorded(cls, manifest: dict[str, Any]) -> "Progress":
        """Return the progress that a manifest holds."""
        stored = manifest["progress"]
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})


class Checkpoint:
    def __init__(self, folder: Path, initial_digests: Sequence[str], keep: int = 1) -> None:
        """Open the checkpoint in `folder`; `keep` is the number of committed rounds that are kept, with the last."""
        self.folder = ensure_folder(folder)
        self._keep = keep
        self._initial_digests = initial_digests  # of each client before it ever trained
        self._manifest = read_manifest(folder)
        self.records: Records = {int(client): record for client, record in self._manifest.get("clients", {}).items()}
        self.marks: Marks = {name: self._manifest[name] for name in Marks.__annotations__ if name in self._manifest}  # type: ignore[assignment]
        place_digests(folder, self._initial_digests, self.records)
        self._kept = self._read_kept()
        remove_parts(self.folder)
        self._remove_others()

    def _read_kept(self) -> dict[int, dict[str, Any]]:
        """Return manifests by round, up to the current one; one that cannot be read is no longer kept."""
        kept = {}
        last = self._manifest["progress"]["round"] if self._manifest else 0
        for round in kept_rounds(self.folder):
            with suppress(DataError):
                if round < last:
                    kept[round] = _kept_part(read_manifest(self.folder, kept_name(round)))
        if last:
            kept[last] = _kept_part(self._manifest)
        return dict(sorted(kept.items())[-self._keep :])

    @property
    def oldest(self) -> int:
        """Return the oldest round that is kept, 0 before the first."""
        return min(self._kept, default=0)

    @property
    def kept_records(self) -> dict[int, Records]:
        """Return the clients' records by round, for every round that is kept."""
        return {
            round: {int(client): record for client, record in one["clients"].items()}
            for round, one in self._kept.items()
        }

    @property
    def rollback(self) -> Rollback | None:
        return self._manifest.get("rollback")

    @property
    def events_size(self) -> int:
        """Return the size of events.jsonl including the events of the committed round."""
        return int(self._manifest["events_size"]) if self._manifest else 0

    @property
    def progress(self) -> Progress:
        return Progress.recorded(self._manifest) if self._manifest else Progress()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the events of the committed round, so that a crash right after the commit loses none."""
        events: list[dict[str, Any]] = self._manifest.get("events", [])
        return events

    @property
    def state_digest(self) -> str:
        digest: str = self._manifest["state_digest"]
        return digest

    def server_state(self) -> State | None:
        if not self._manifest:
            return None
        return self._load(self._manifest["server"])

    def observations(self) -> State | None:
        """Return the server's observations up to that round; None if none were kept."""
        return self._load(self._manifest["observed"]) if "observed" in self._manifest else None

    def _load(self, named: dict[str, str]) -> State:
        state = load_state(self.folder / named["file"], named["digest"])
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}

    def _save(self, file: str, state: State) -> dict[str, str]:
        save_state(self.folder / file, state)
        return {"file": file, "digest": digest_state(state)}

    def digest(self, server: State, moved: Records) -> str:
        """Return the state digest with these states in place of the committed ones."""
        digests = place_digests(self.folder, self._initial_digests, self.records | moved)
        return digest_run(digest_state(server), digests)

    def commit(
        self,
        server: State,
        observations: State,
        moved: Records,
        state_digest: str,
        progress: Progress,
        events: list[dict[str, Any]],
        events_size: int,
    ) -> None:
        """Commit the round: the manifest is replaced last, in one step, when everything that it names is on disk.

        `events_size` is the size of events.jsonl once these events are appended.
        """
        files = {"server": self._save(f"server-{progress.round}.safetensors", server)}
        if observations:
            files["observed"] = self._save(f"observed-{progress.round}.safetensors", observations)
        records = self.records | moved
        self.marks["chain"] = events[-1]["chain"]
        manifest = {
            "schema": SCHEMA,
            "progress": vars(progress),
            "state_digest": state_digest,
            **files,
            "clients": {str(client): records[client] for client in sorted(records)},
            "events": events,
            "events_size": events_size,
            **self.marks,
        }
        data = signed(manifest)
        if self._keep > 1:
            write_whole(self.folder / kept_name(progress.round), data)
        write_whole(self.folder / CURRENT, data)
        self._manifest, self.records = manifest, records
        self._kept[progress.round] = _kept_part(manifest)
        self._kept = dict(list(self._kept.items())[-self._keep :])
        self._remove_others()

    def _remove_others(self) -> None:
        """Remove manifests and server states of rounds that are no longer kept or were never committed."""
        remove_named(self.folder, KEPT, {kept_name(round) for round in self._kept} if self._keep > 1 else ())
        states = {one[name]["file"] for one in self._kept.values() for name in SERVER_FILES if name in one}
        remove_named(self.folder, _STATES, states)


def _kept_part(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a manifest that name files."""
    return {name: manifest[name] for name in (*SERVER_FILES, "clients") if name in manifest}


def place_digests(folder: Path, initial: Sequence[str], records: Records) -> list[str]:
    """Return the digest of every client: that of its record, else of its initial state."""
    digests = list(initial)
    for client, record in records.items():
        if client >= len(digests):
            raise DataError(f"The manifest in {folder} names client {client}; the run has only {len(digests)} clients.")
        digests[client] = record["digest"]
    return digests
