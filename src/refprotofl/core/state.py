"""The state that outlives a round, as plain data, and its digests."""

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

State = dict[str, Tensor | int | str]


def digest_value(value: Tensor | int | float | str) -> str:
    """Return the digest of a value; for a tensor over type, shape and bits."""
    if not isinstance(value, Tensor):
        return hashlib.sha256(f"{type(value).__name__}\0{value}".encode()).hexdigest()
    total = hashlib.sha256(f"{value.dtype}{tuple(value.shape)}\0".encode())
    if value.numel():  # an empty tensor may have strides that cannot be viewed
        total.update(value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


def digest_state(state: State) -> str:
    """Return the digest of a state over its entries by name."""
    lines = [f"{name} {digest_value(state[name])}\n" for name in sorted(state)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_run(server: str, clients: Iterable[str]) -> str:
    """Return the `state_digest` of a run, over the server's digest and those of the clients in id order."""
    total = hashlib.sha256(bytes.fromhex(server))
    for client in clients:
        total.update(bytes.fromhex(client))
    return total.hexdigest()


def tensor_of(state: Mapping[str, Tensor | int | str], name: str) -> Tensor:
    """Return a tensor of a state; raise KeyError if there is none of this name."""
    found = state[name]
    if not isinstance(found, Tensor):
        raise KeyError(name)
    return found
