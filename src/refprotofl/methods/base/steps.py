"""The steps of a compressed broadcast that some clients missed, and their form in a message.

A client that missed broadcasts is sent the steps one by one, unless the whole vector is shorter.
"""

from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import State, tensor_of
from refprotofl.methods.base.schema import Dense, Fields, Refused, ValidatedMessage, read_fields
from refprotofl.wire import Counted, WireError, decode

_PREFIX = 4  # bytes of a step's length, little-endian, before its message
_VALUE = 4  # bytes of a value of the whole vector


def field(size: int) -> Dense:
    """Return the field of missed steps: never longer than the vector of `size` values, which is sent otherwise."""
    only_bytes = Counted("other_values", 0)
    return Dense((None,), (torch.uint8,), kind=only_bytes, optional=True, longest=_VALUE * size)


def split(joined: Tensor, fields: Fields) -> list[ValidatedMessage]:
    """Return the messages in a field of missed steps (bytes,); each must have these fields."""
    left = joined.numpy().tobytes()
    found: list[ValidatedMessage] = []
    while left:
        length = int.from_bytes(left[:_PREFIX], "little")
        step, left = left[_PREFIX : _PREFIX + length], left[_PREFIX + length :]
        if len(step) != length:
            raise Refused(f"step {len(found) + 1} that was missed is cut off")
        try:
            found.append(read_fields(fields, decode(step)))
        except WireError as problem:
            raise Refused(f"step {len(found) + 1} that was missed: {problem}") from None
    return found


class MissedSteps:
    """The steps before the last one, as far back as a client needs them and as they are shorter than the vector."""

    def __init__(self, size: int) -> None:
        self.whole = _VALUE * size  # bytes of the whole vector
        # Whether a client that holds no broadcast can derive the first one, the initial weights.
        self.from_seed = False
        self._steps: list[bytes] = []  # encoded, each with its length
        self._base = 0  # the broadcast that the first of them starts from

    def add(self, step: bytes, base: int, earliest: int) -> None:
        """Add the step from broadcast `base`; forget those from before `earliest`."""
        self._base = base - len(self._steps)
        self._steps.append(len(step).to_bytes(_PREFIX, "little") + step)
        needed = list(accumulate(map(len, reversed(self._steps))))  # bytes of the last one, of the last two, ...
        count = min(sum(length < self.whole for length in needed), max(0, base + 1 - earliest))
        self._base += len(self._steps) - count
        self._steps = self._steps[len(self._steps) - count :]

    def since(self, base: int, end: int) -> Tensor | None:
        """Return the steps from broadcast `base` to broadcast `end` (bytes,); None if one of them is not kept."""
        count = end - base
        if count and (count > len(self._steps) or self._base + len(self._steps) != end):
            return None
        joined = b"".join(self._steps[len(self._steps) - count :])
        return torch.from_numpy(np.frombuffer(joined, np.uint8).copy())

    @property
    def state(self) -> State:
        """The part that must outlive a round: nothing while all clients hold the last broadcast."""
        found: State = {"from_seed": 1} if self.from_seed else {}
        if self._steps:
            joined = np.frombuffer(b"".join(self._steps), np.uint8).copy()
            found |= {"missed": torch.from_numpy(joined), "missed_base": self._base}
        return found

    def restore(self, state: State) -> None:
        """Take over what outlived a round."""
        self.from_seed, self._steps, self._base = bool(state.get("from_seed", 0)), [], 0
        if "missed" in state:
            self._base, left = int(state["missed_base"]), tensor_of(state, "missed").numpy().tobytes()
            while left:
                end = _PREFIX + int.from_bytes(left[:_PREFIX], "little")
                self._steps.append(left[:end])
                left = left[end:]
