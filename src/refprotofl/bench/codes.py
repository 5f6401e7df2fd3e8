"""Lengths of codes on real uploads: masks by the index code, values by the entropy code, changes by thin's codes."""

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.bench.measuring import Report, Row
from refprotofl.core import stream
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.methods.builtin.thin.codes import CODES
from refprotofl.methods.builtin.thin.quantisation import code_bytes
from refprotofl.methods.common.rotated_quantiser import number_of_blocks
from refprotofl.wire import Reader, Sparse, decode, decode_indices, encode_indices
from refprotofl.wire.indices import describe
from refprotofl.wire.tensors import same_bits
from refprotofl.wire.values import CODED, LEAST, decode_values, encode_values, least_value_bits

Mask = NDArray[np.bool_]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class CodedMask:
    """One mask: the bytes of its indices, and the milliseconds to code them."""

    name: str
    size: int
    marked: int
    bound_bytes: float  # log2 C(size, marked) / 8: the minimum for a uniformly random mask
    code_bytes: int
    ratio: float | None  # code_bytes / bound_bytes; None where the bound is zero
    variant: str
    bitmap_bytes: int
    uint32_bytes: int
    encode_ms: float
    decode_ms: float


def code_table(masks: Mapping[str, Mask], repeats: int = 5) -> list[CodedMask]:
    """Return a row for each mask; times are medians of `repeats`."""
    return [_measure_mask(name, mask, repeats) for name, mask in masks.items()]


def uniform_masks(
    sizes: Sequence[int] = (66_954, 267_786),
    shares: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5),
    seed: int = 0,
) -> dict[str, Mask]:
    """Return masks with a share of all coordinates marked at random."""
    masks: dict[str, Mask] = {}
    for size in sizes:
        for share in shares:
            generator = np.random.default_rng([seed, size, round(share * 1_000_000)])
            mask = np.zeros(size, bool)
            mask[generator.choice(size, round(share * size), replace=False)] = True
            masks[f"uniform {size} {share:.1%}"] = mask
    return masks


def bound_bytes(size: int, marked: int) -> float:
    """Return log2 of the number of masks with this many marks, in bytes."""
    nats = math.lgamma(size + 1) - math.lgamma(marked + 1) - math.lgamma(size - marked + 1)
    return max(nats, 0.0) / math.log(2) / 8


def _measure_mask(name: str, mask: Mask, repeats: int) -> CodedMask:
    indices = np.flatnonzero(mask).astype(np.int64)
    code, encode_ms = timed_result(lambda: encode_indices(indices, mask.size), repeats)
    decoded, decode_ms = timed_result(lambda: decode_indices(Reader(code), mask.size, indices.size), repeats)
    if not np.array_equal(decoded, indices):
        raise AssertionError(f"the mask {name!r} did not survive its code")
    bound = bound_bytes(mask.size, indices.size)
    return CodedMask(
        name=name,
        size=mask.size,
        marked=indices.size,
        bound_bytes=bound,
        code_bytes=len(code),
        ratio=len(code) / bound if bound else None,
        variant=describe(code),
        bitmap_bytes=-(-mask.size // 8),
        uint32_bytes=4 * indices.size,
        encode_ms=encode_ms,
        decode_ms=decode_ms,
    )


def timed_result(work: Callable[[], _Result], repeats: int) -> tuple[_Result, float]:
    """Return the result of the work, and the median of its times in milliseconds."""
    times = []
    for _ in range(max(repeats, 1)):
        start = time.perf_counter()
        result = work()
        times.append(1000 * (time.perf_counter() - start))
    return result, median(times)


MASK_SHARES = (0.01, 0.1, 0.3)


class MaskRecorder(Callback):
    """Keeps the newest mask of every client."""

    def __init__(self) -> None:
        self.masks: dict[int, Mask] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if direction == "up" and phase == "train":
            sent = next(value for value in decode(data).values() if isinstance(value, Sparse))
            self.masks[client] = np.zeros(sent.size, bool)
            self.masks[client][sent.indices.numpy()] = True


def masks_of_run(experiment: Experiment, data: Path | None, rounds: int) -> dict[str, Mask]:
    """Return the masks of the first three clients after some rounds, for several shares kept."""
    masks = {}
    for share in MASK_SHARES:
        table = experiment.refprotofl.model_copy(update={"keep": share, "uplink_budget": None})
        changed = {"rounds": rounds, "refprotofl": table}
        callback = MaskRecorder()
        with tempfile.TemporaryDirectory() as folder:
            run(experiment.model_copy(update=changed), out=Path(folder) / "run", data=data, callback=callback)
        for client in sorted(callback.masks)[:3]:
            masks[f"{experiment.dataset} {share:.0%}, client {client}"] = callback.masks[client]
    return masks


@dataclass(frozen=True)
class CodedValues:
    """One kind of upload: bits per value, and the milliseconds to code them."""

    name: str
    values: int
    plain_bits: float
    code_bits: float
    entropy_bits: float
    ratio: float  # code_bits / entropy_bits
    encode_ms: float
    decode_ms: float


class ValueRecorder(Callback):
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


VALUE_VARIANTS: Mapping[str, Sequence[str]] = {
    "refprotofl": (),
    "refprotofl, bfloat16": ("refprotofl.value-type=bfloat16", "refprotofl.prototype-type=bfloat16"),
    "refprotofl, int8": ("refprotofl.value-type=int8",),
    "fedavg, whole model": ("method=fedavg", "share=full"),
    "fedavg, top-k-ef": ("method=fedavg", "share=full", "compress.name=top-k-ef"),
    "fedavg, qsgd": ("method=fedavg", "share=full", "compress.name=qsgd"),
}


def values_of_run(experiment: Experiment, data: Path | None) -> dict[str, Tensor]:
    """Return the values that the first client sends in the last round, by field."""
    callback = ValueRecorder()
    with tempfile.TemporaryDirectory() as folder:
        run(experiment, out=Path(folder) / "run", data=data, callback=callback)
    return callback.values


def value_table(values: Mapping[str, Tensor], repeats: int = 3) -> list[CodedValues]:
    return [_measure_values(name, one, repeats) for name, one in values.items()]


def _measure_values(name: str, values: Tensor, repeats: int) -> CodedValues:
    code, encode_ms = timed_result(lambda: encode_values(values), repeats)
    decoded, decode_ms = timed_result(lambda: decode_values(Reader(code), values.dtype, len(values)), repeats)
    if not same_bits(decoded, values):
        raise AssertionError(f"the values {name!r} did not survive their code")
    entropy, coded = least_value_bits(values) / len(values), 8 * len(code) / len(values)
    plain = 8.0 * torch.empty(0, dtype=values.dtype).element_size()
    return CodedValues(name, len(values), plain, coded, entropy, coded / entropy, encode_ms, decode_ms)


BITS = (0.25, 0.5, 1.0, 2.0)
CLIENTS = 3


class ChangeRecorder(Callback):
    """Keeps the changes of the first clients' weights, by client and round."""

    def __init__(self) -> None:
        self.changes: dict[int, list[Tensor]] = {client: [] for client in range(CLIENTS)}
        self._begun: dict[int, Tensor] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if phase != "train" or client not in self.changes:
            return
        shared = decode(data)["shared"]
        assert isinstance(shared, Tensor)
        if direction == "down":
            self._begun[client] = shared.clone()
        else:
            self.changes[client].append(shared - self._begun[client])


def changes_of_run(experiment: Experiment, data: Path | None) -> list[list[Tensor]]:
    """Return the changes of the whole model in each round, by client of FedAvg."""
    callback, sent = ChangeRecorder(), experiment.model_copy(update={"first_weights": "sent"})  # what changes are from
    with tempfile.TemporaryDirectory() as folder:
        run(sent, out=Path(folder) / "run", data=data, callback=callback)
    return [changes for changes in callback.changes.values() if changes]


def measure_codes(changes: Sequence[Sequence[Tensor]], bits: Sequence[float] = BITS) -> Report:
    """Return a row for each rate and round; with error feedback, the coding error is added to the next change."""
    rows: list[Row] = []
    for rate in bits:
        left = {name: [_coding_errors(name, one, rate) for one in changes] for name in CODES}
        for number in range(min(map(len, changes))):
            shares = {name: mean(each[number] for each in clients) for name, clients in left.items()}
            rows.append({"bits": rate, "round": number + 1, **shares})
    vector, draw, times = changes[0][0], partial(stream, 0, "bench"), list[str]()
    for name, code in CODES.items():
        coded, encode_ms = timed_result(partial(code.encode, vector, _length(name, len(vector), 1.0), draw), 3)
        _, decode_ms = timed_result(partial(code.decode, coded, len(vector), draw, False), 3)
        times.append(f"{name} {encode_ms:.0f} and {decode_ms:.0f}")
    size = f"Means over {len(changes)} clients of FedAvg with {len(vector):,} weights."
    spent = f"Milliseconds to encode and to decode at 1 bit per weight: {', '.join(times)}."
    return Report("Coding error as a share of the squared norm", rows, (size, spent))


def _coding_errors(name: str, changes: Sequence[Tensor], rate: float) -> list[float]:
    code, residual, shares = CODES[name], torch.zeros_like(changes[0]), []
    for number, change in enumerate(changes):
        vector, draw = change + residual, partial(stream, 0, "bench", round=number)
        decoded = code.decode(code.encode(vector, _length(name, len(vector), rate), draw), len(vector), draw, False)
        residual = vector - decoded
        shares.append(float(residual.square().sum() / vector.square().sum()))
    return shares


def _length(name: str, size: int, rate: float) -> int:
    """Return the length of a code that takes as many bytes as the others, scales included."""
    return code_bytes(size, rate) + 2 * (number_of_blocks(size) - CODES[name].scales(size))
