"""Masks that a real federation sends."""

import tempfile
from pathlib import Path

import numpy as np

from refprotofl.bench.wire import Mask
from refprotofl.experiment import Experiment
from refprotofl.federation.session import Callback, run
from refprotofl.wire import Sparse, decode

SHARES = (0.01, 0.1, 0.3)


class MaskWatcher(Callback):
    """Keeps the newest mask of every client."""

    def __init__(self) -> None:
        self.masks: dict[int, Mask] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if direction == "up" and phase == "train":
            sent = next(value for value in decode(data).values() if isinstance(value, Sparse))
            self.masks[client] = np.zeros(sent.size, bool)
            self.masks[client][sent.indices.numpy()] = True


def masks_of_run(experiment: Experiment, data: Path | None, rounds: int) -> dict[str, Mask]:
    """Of the first three clients after some rounds, for several shares kept."""
    masks = {}
    for share in SHARES:
        table = experiment.refprotofl.model_copy(update={"keep": share, "uplink_budget": None})
        changed = {"rounds": rounds, "refprotofl": table}
        callback = MaskWatcher()
        with tempfile.TemporaryDirectory() as folder:
            run(experiment.model_copy(update=changed), out=Path(folder) / "run", data=data, callback=callback)
        for client in sorted(callback.masks)[:3]:
            masks[f"{experiment.dataset} {share:.0%}, client {client}"] = callback.masks[client]
    return masks
