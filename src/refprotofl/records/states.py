"""Plain state as safetensors files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from refprotofl.errors import DataError
from refprotofl.records.files import sha256, write_whole
from refprotofl.state import State


def save_state(path: Path, state: State, notes: Mapping[str, str] | None = None, sync: bool = True) -> str:
    """Writes the state and gives the file's hash; `notes` go into the file's header beside it."""
    tensors = {name: value.contiguous() for name, value in state.items() if isinstance(value, Tensor)}
    scalars = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    header = {**(notes or {}), "scalars": json.dumps(scalars, sort_keys=True)}
    data = safetensors.torch.save(tensors, metadata=header)
    write_whole(path, data, sync)
    return sha256(data)


def load_state(path: Path, expected: str) -> State:
    """Reads a state whose file must have the hash that the manifest names."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise _unreadable(path, problem) from None
    if sha256(data) != expected:
        raise DataError(f"The checkpoint file {path} is truncated or was changed: its hash is not the manifest's.")
    length = int.from_bytes(data[:8], "little")
    scalars = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["scalars"])
    return {**safetensors.torch.load(data), **scalars}


def map_state(path: Path) -> tuple[State, dict[str, str]]:
    """A state that this run has written, mapped into memory instead of read, and the notes beside it."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            notes: dict[str, Any] = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (OSError, safetensors.SafetensorError) as problem:
        raise _unreadable(path, problem) from None
    return {**tensors, **json.loads(notes.pop("scalars"))}, notes


def _unreadable(path: Path, problem: Exception) -> DataError:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
    return DataError(f"The checkpoint file {path} cannot be read: {reason}.")
