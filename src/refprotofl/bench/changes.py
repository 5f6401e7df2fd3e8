"""What thin's codes leave out of the changes that real clients make, at the same length."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from refprotofl.bench.measuring import Report, Row
from refprotofl.bench.wire import timed
from refprotofl.core.streams import stream
from refprotofl.experiment import Experiment
from refprotofl.federation.session import Callback, run
from refprotofl.methods.builtin.thin.codes import CODES
from refprotofl.methods.builtin.thin.quantisation import code_bytes, number_of_blocks
from refprotofl.wire import decode

BITS = (0.25, 0.5, 1.0, 2.0)
CLIENTS = 3


class ChangeWatcher(Callback):
    """Keeps how the first clients' weights moved, by client and round."""

    def __init__(self) -> None:
        self.changes: dict[int, list[Tensor]] = {client: [] for client in range(CLIENTS)}
        self._begun: dict[int, Tensor] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if phase != "train" or client not in self.changes:
            return
        told = decode(data)["shared"]
        assert isinstance(told, Tensor)
        if direction == "down":
            self._begun[client] = told.clone()
        else:
            self.changes[client].append(told - self._begun[client])


def changes_of_run(experiment: Experiment, data: Path | None) -> list[list[Tensor]]:
    """Of FedAvg's clients, one after the other: how the whole model moved in each round."""
    callback = ChangeWatcher()
    with tempfile.TemporaryDirectory() as folder:
        run(experiment, out=Path(folder) / "run", data=data, callback=callback)
    return [changes for changes in callback.changes.values() if changes]


def measure_codes(changes: Sequence[Sequence[Tensor]], bits: Sequence[float] = BITS) -> Report:
    """A row for each rate and round; what a code leaves out is owed, and comes on top of the next change."""
    rows: list[Row] = []
    for rate in bits:
        left = {name: [_left_out(name, one, rate) for one in changes] for name in CODES}
        for number in range(min(map(len, changes))):
            shares = {name: mean(each[number] for each in clients) for name, clients in left.items()}
            rows.append({"bits": rate, "round": number + 1, **shares})
    vector, draw, times = changes[0][0], partial(stream, 0, "bench"), list[str]()
    for name, code in CODES.items():
        coded, encode_ms = timed(partial(code.encode, vector, _length(name, len(vector), 1.0), draw), 3)
        _, decode_ms = timed(partial(code.decode, coded, len(vector), draw, False), 3)
        times.append(f"{name} {encode_ms:.0f} and {decode_ms:.0f}")
    size = f"Means over {len(changes)} clients of FedAvg with {len(vector):,} weights."
    spent = f"Milliseconds to encode and to decode at one bit a weight: {', '.join(times)}."
    return Report("Share of the squared norm that a code leaves out", rows, (size, spent))


def _left_out(name: str, changes: Sequence[Tensor], rate: float) -> list[float]:
    code, owed, shares = CODES[name], torch.zeros_like(changes[0]), []
    for number, change in enumerate(changes):
        vector, draw = change + owed, partial(stream, 0, "bench", round=number)
        said = code.decode(code.encode(vector, _length(name, len(vector), rate), draw), len(vector), draw, False)
        owed = vector - said
        shares.append(float(owed.square().sum() / vector.square().sum()))
    return shares


def _length(name: str, size: int, rate: float) -> int:
    """Of a code that takes as many bytes as the others, scales included."""
    return code_bytes(size, rate) + 2 * (number_of_blocks(size) - CODES[name].scales(size))
