"""Guards against silent no-ops: each raises where something that the experiment promises did not happen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from refprotofl.core import GuardError


def alignment_happened(penalty: float, align: float, anchored: Tensor, key: str = "align") -> None:
    """Check the alignment loss; `anchored` (n,) marks the samples whose class has an anchor, `key` names the weight."""
    if align > 0 and bool(anchored.any()) and not penalty > 0:
        raise GuardError(f"the alignment loss was {penalty} although anchors exist and {key} = {align}")


def backbone_moved(before_and_after: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Check that at least one of the trainable tensors changed."""
    if before_and_after and all(before.equal(after) for before, after in before_and_after):
        raise GuardError("training left the backbone exactly as it was")


def part_moved(before: Tensor, after: Tensor, part: str) -> None:
    """Check that a phase of training changed the part that it trains."""
    if before.equal(after):
        raise GuardError(f"training did not change the {part}")


def something_said(change: Tensor, said: Tensor, length: int) -> None:
    """Check that a code of `length` bytes does not decode to zeros, unless nothing changed."""
    if bool(change.any()) and not bool(said.any()):
        raise GuardError(
            f"a code of {length} bytes says nothing of a change that is not zero: it takes more bits or a larger budget"
        )


def announced_number_sent(mask: Tensor, keep: int) -> None:
    sent = int(mask.sum())
    if sent != keep:
        raise GuardError(f"{sent} coordinates are about to be sent, but {keep} were announced")


def anchors_cover(anchors: Tensor, defined: Tensor, public_classes: list[int], counts: Tensor) -> None:
    """Check that anchors (C, m) exist for every public class and every class that a client reported samples of."""
    claimed = counts.sum(dim=0) > 0  # (C,)
    claimed[public_classes] = True
    missing = (claimed & ~(defined & torch.isfinite(anchors).all(dim=1))).nonzero().squeeze(1).tolist()
    if missing:
        raise GuardError(f"there is no valid anchor for classes {missing}, which public or private data cover")


def server_moved(before: Tensor, after: Tensor, what: str) -> None:
    """Check that the server's own training changed something."""
    if before.equal(after):
        raise GuardError(f"the server's training left {what} exactly as it was")


def virtual_terms_counted(penalty: float, weight: float) -> None:
    """Check the loss terms that come from the virtual set, whose weights sum to `weight`."""
    if weight > 0 and not penalty > 0:
        raise GuardError(f"the loss on the virtual set was {penalty} although its weights sum to {weight}")
