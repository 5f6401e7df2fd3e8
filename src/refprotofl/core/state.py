"""Plain state, the only thing that outlives a round, and its digests."""

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

State = dict[str, Tensor | int | str]


def digest_value(value: Tensor | int | float | str) -> str:
    """Of a tensor: over type, shape and bits."""
    if not isinstance(value, Tensor):
        return hashlib.sha256(f"{type(value).__name__}\0{value}".encode()).hexdigest()
    total = hashlib.sha256(f"{value.dtype}{tuple(value.shape)}\0".encode())
    if value.numel():  # what is empty may have strides that cannot be viewed
        total.update(value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


def digest_state(state: State) -> str:
    """Over a state's entries by name."""
    lines = [f"{name} {digest_value(state[name])}\n" for name in sorted(state)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_run(server: str, clients: Iterable[str]) -> str:
    """`state_digest`: over the server state's digest and each client's in id order."""
    total = hashlib.sha256(bytes.fromhex(server))
    for client in clients:
        total.update(bytes.fromhex(client))
    return total.hexdigest()


def tensor_of(state: Mapping[str, Tensor | int | str], name: str) -> Tensor:
    """An entry that must be there as a tensor: KeyError if it is not."""
    found = state[name]
    if not isinstance(found, Tensor):
        raise KeyError(name)
    return found
