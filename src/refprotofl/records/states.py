"""Plain state as safetensors files."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from refprotofl.errors import DataError
from refprotofl.records.files import put_whole
from refprotofl.state import State, digest_state


def save_state(path: Path, state: State, notes: Mapping[str, str] | None = None, *, sync: bool = True) -> None:
    """Writes the state; `notes` go into the file's header beside it."""
    tensors = {name: value.contiguous() for name, value in state.items() if isinstance(value, Tensor)}
    scalars = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    header = {**(notes or {}), "scalars": json.dumps(scalars, sort_keys=True)}

    def write(part: Path) -> None:
        try:
            safetensors.torch.save_file(tensors, part, metadata=header)
        except safetensors.SafetensorError as problem:
            full = f"(os error {errno.ENOSPC})" in str(problem)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(problem)) from None

    put_whole(path, write, sync=sync)


def load_state(path: Path, digest: str) -> State:
    """A state that must have the digest that the manifest names."""
    state, _ = map_state(path)
    if digest_state(state) != digest:
        raise DataError(f"The checkpoint file {path} is truncated or was changed: its digest is not the manifest's.")
    return state


def map_state(path: Path) -> tuple[State, dict[str, str]]:
    """A state, mapped into memory instead of read, and the notes beside it."""
    try:
        path.stat()  # safetensors does not say as clearly what is wrong
        with safetensors.safe_open(path, framework="pt") as file:
            notes: dict[str, str] = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        return {**tensors, **json.loads(notes.pop("scalars"))}, notes
    except OSError as problem:
        raise DataError(f"The checkpoint file {path} cannot be read: {problem.strerror or problem}.") from None
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"The checkpoint file {path} is truncated or was changed: {problem}.") from None
