"""Plain state as safetensors files."""

import json
from pathlib import Path

import safetensors.torch
from torch import Tensor

from refprotofl.errors import DataError
from refprotofl.records.files import sha256, write_whole
from refprotofl.state import State


def save_state(path: Path, state: State) -> str:
    """Writes the state and gives the file's hash."""
    tensors = {name: value.contiguous() for name, value in state.items() if isinstance(value, Tensor)}
    scalars = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    data = safetensors.torch.save(tensors, metadata={"scalars": json.dumps(scalars, sort_keys=True)})
    write_whole(path, data)
    return sha256(data)


def load_state(path: Path, expected: str) -> State:
    """Reads a state whose file must have the hash that the manifest names."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise DataError(f"The checkpoint file {path} cannot be read: {problem.strerror}.") from None
    if sha256(data) != expected:
        raise DataError(f"The checkpoint file {path} is truncated or was changed: its hash is not the manifest's.")
    length = int.from_bytes(data[:8], "little")
    scalars = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["scalars"])
    return {**safetensors.torch.load(data), **scalars}
