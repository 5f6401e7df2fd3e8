"""How many bits a value takes that real clients send, plain and in the entropy code, beside the entropy."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from refprotofl.bench.wire import timed
from refprotofl.experiment import Experiment
from refprotofl.federation.session import Callback, run
from refprotofl.wire import Sparse, decode
from refprotofl.wire.reader import Reader
from refprotofl.wire.tensors import same_bits
from refprotofl.wire.values import CODED, LEAST, decode_values, encode_values, least_value_bits


@dataclass(frozen=True)
class CodedValues:
    """One kind of upload: bits a value, and how long coding them takes, in milliseconds."""

    name: str
    values: int
    plain_bits: float
    code_bits: float
    entropy_bits: float
    ratio: float  # code_bits / entropy_bits
    encode_ms: float
    decode_ms: float


class ValueWatcher(Callback):
    """Keeps the newest values of each field that the first client sends up in training."""

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if (direction, client, purpose) != ("up", 0, "training"):
            return
        for name, value in decode(data).items():
            found = value.values if isinstance(value, Sparse) else value
            if isinstance(found, Tensor) and found.dtype in CODED and found.numel() >= LEAST:
                self.values[name] = found.flatten()


VARIANTS: Mapping[str, Sequence[str]] = {
    "refprotofl": (),
    "refprotofl, bfloat16": ("refprotofl.value-type=bfloat16", "refprotofl.prototype-type=bfloat16"),
    "refprotofl, int8": ("refprotofl.value-type=int8",),
    "fedavg, whole model": ("method=fedavg", "share=full"),
    "fedavg, top-k-ef": ("method=fedavg", "share=full", "compress.name=top-k-ef"),
    "fedavg, qsgd": ("method=fedavg", "share=full", "compress.name=qsgd"),
}


def values_of_run(experiment: Experiment, data: Path | None) -> dict[str, Tensor]:
    """What the first client sends up in the last round, by field."""
    callback = ValueWatcher()
    with tempfile.TemporaryDirectory() as folder:
        run(experiment, out=Path(folder) / "run", data=data, callback=callback)
    return callback.values


def value_table(values: Mapping[str, Tensor], repeats: int = 3) -> list[CodedValues]:
    return [_measure(name, one, repeats) for name, one in values.items()]


def _measure(name: str, values: Tensor, repeats: int) -> CodedValues:
    code, encode_ms = timed(lambda: encode_values(values), repeats)
    decoded, decode_ms = timed(lambda: decode_values(Reader(code), values.dtype, len(values)), repeats)
    if not same_bits(decoded, values):
        raise AssertionError(f"the values {name!r} did not survive their code")
    entropy, coded = least_value_bits(values) / len(values), 8 * len(code) / len(values)
    plain = 8.0 * torch.empty(0, dtype=values.dtype).element_size()
    return CodedValues(name, len(values), plain, coded, entropy, coded / entropy, encode_ms, decode_ms)
