"""What a message is: a flat mapping of names to tensors, sparse tensors and scalars."""

from dataclasses import dataclass

from torch import Tensor

from refprotofl.wire.tensors import same_bits


@dataclass(frozen=True, eq=False)
class Sparse:
    """Some coordinates of a vector of `size` elements, and the values there."""

    indices: Tensor  # (marked,) int64, strictly ascending, each in [0, size)
    values: Tensor  # (marked,) of any type that a dense tensor may have
    size: int

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same bits."""
        if not isinstance(other, Sparse):
            return NotImplemented
        same_places = self.size == other.size and same_bits(self.indices, other.indices)
        return same_places and same_bits(self.values, other.values)


Value = Tensor | Sparse | int | float | str | bool
Message = dict[str, Value]
