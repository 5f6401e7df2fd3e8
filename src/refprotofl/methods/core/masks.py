"""Which coordinates clients sent: shares of the model's parts, overlap between clients, how long one goes unsent.

Computed at the server from the masks that it gets anyway. It is no part of the state, but is kept beside it, so that a
run that goes on after a break counts on; one whose checkpoint has none counts from there, and says since when.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from refprotofl.basics.state import State

AGES = (1, 2, 4, 8, 16, 32, 64)  # rounds unsent from which each class of ages but the first begins


class Masks:
    """The masks of one round after another, over a vector that is made of parts of these sizes."""

    def __init__(self, parts: Mapping[str, int]) -> None:
        self._parts = dict(parts)
        self._size = sum(parts.values())
        self._last = torch.zeros(self._size, dtype=torch.int32)  # the round in which each coordinate was sent last
        self._since = 0
        self._round = 0
        self._clients = 0
        self._senders = torch.zeros(0, dtype=torch.int32)  # (d,), of this round

    @property
    def kept(self) -> State:
        return {"last": self._last, "since": self._since}

    def restore(self, kept: State) -> None:
        last, since = kept["last"], kept["since"]
        if not isinstance(last, Tensor) or last.dtype != torch.int32 or last.shape != (self._size,):
            raise ValueError(f"when coordinates were sent last is not told for the {self._size} that there are")
        if type(since) is not int:
            raise ValueError("since when masks are counted is no number")
        self._last, self._since = last.clone(), since

    def begin(self, round: int) -> None:
        self._since = self._since or round
        self._round, self._clients = round, 0
        self._senders = torch.zeros(self._size, dtype=torch.int32)

    def take(self, places: Tensor) -> None:
        """One client's mask, as the places (sent,) of what it sent."""
        self._clients += 1
        self._senders[places] += 1
        self._last[places] = self._round

    def told(self) -> dict[str, Any]:
        """The round in less than 1 kB of JSON; nothing where nobody sent anything."""
        if not self._clients:
            return {}
        return {
            "clients": self._clients,
            "overlap": self._overlap(),
            "since": self._since,
            "ages": [0, *AGES],
            "parts": {name: self._part(senders, last) for name, senders, last in self._by_part()},
        }

    def _overlap(self) -> float | None:
        """Of what a client sent, the share that another client sent too, on average over pairs; 1 client: None."""
        if self._clients < 2:
            return None
        senders = self._senders.double()
        both = float((senders * (senders - 1)).sum())  # over ordered pairs
        return round(both / ((self._clients - 1) * max(1.0, float(senders.sum()))), 4)

    def _by_part(self) -> list[tuple[str, Tensor, Tensor]]:
        sizes = list(self._parts.values())
        return list(zip(self._parts, self._senders.split(sizes), self._last.split(sizes), strict=True))

    def _part(self, senders: Tensor, last: Tensor) -> dict[str, Any]:
        """`unsent`: how many coordinates were sent last so many rounds ago, by class of ages; `never` are apart."""
        ever = last > 0
        ages = self._round - last[ever]
        classes = torch.bucketize(ages, torch.tensor(AGES), right=True)
        return {
            "size": len(senders),
            "sent": int(senders.sum()),
            "by_anyone": int((senders > 0).sum()),
            "unsent": torch.bincount(classes, minlength=len(AGES) + 1).tolist(),
            "never": int((~ever).sum()),
        }
