"""Plain state as safetensors files."""

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from refprotofl.core import DataError, State, digest_state
from refprotofl.records.atomic_files import put_whole
from refprotofl.records.safe_io import open_file

_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def save_state(path: Path, state: State, notes: Mapping[str, str] | None = None, *, sync: bool = True) -> None:
    """Write the state; `notes` go into the header of the file."""
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
    """Return a state; raise DataError unless it has the digest in the manifest."""
    state, _ = map_state(path)
    if digest_state(state) != digest:
        raise DataError(f"The checkpoint file {path} is truncated or was changed: its digest is not the manifest's.")
    return state


def map_state(path: Path) -> tuple[State, dict[str, str]]:
    """Return a state, mapped into memory instead of read, and the notes in its header."""
    try:
        with open_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            size = os.fstat(file.fileno()).st_size
            header = json.loads(file.read(length) if length <= size else b"")
        notes: dict[str, str] = header.pop("__metadata__")
        return {**_map_tensors(path, header, 8 + length, size), **json.loads(notes.pop("scalars"))}, notes
    except OSError as problem:
        raise DataError(f"The checkpoint file {path} cannot be read: {problem.strerror or problem}.") from None
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as problem:
        raise DataError(f"The checkpoint file {path} is truncated or was changed: {problem}.") from None


def _map_tensors(path: Path, header: dict[str, Any], start: int, size: int) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file as views of one mapping.

    safetensors can map as well, but reports Ctrl-C at the wrong moment as a damaged file, and the interrupt is lost.
    """
    if size != start + max((entry["data_offsets"][1] for entry in header.values()), default=0):
        raise ValueError("its length does not match its header")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end or math.prod(entry["shape"]) * _TYPES[entry["dtype"]].itemsize != end - begin:
            raise ValueError(f"{name} has a length that does not match its shape")
    if size == start:
        return {name: torch.empty(entry["shape"], dtype=_TYPES[entry["dtype"]]) for name, entry in header.items()}
    mapped = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = mapped[start + begin : start + end].view(_TYPES[entry["dtype"]]).view(entry["shape"])
    return tensors
