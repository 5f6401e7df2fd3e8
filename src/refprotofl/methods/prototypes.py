"""Class prototypes and anchors as fields of a message, and back."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from refprotofl.experiment import Experiment
from refprotofl.methods.base import Refused, class_ids
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind

KINDS: dict[str, Kind] = {"prototypes": "prototype_values", "anchors": "prototype_values"}


def no_anchors(experiment: Experiment) -> tuple[Tensor, Tensor]:
    """What a server starts from: anchors (C, m), of which none is defined (C,)."""
    classes = experiment.known_input.num_classes
    return torch.zeros(classes, experiment.model.embedding), torch.zeros(classes, dtype=torch.bool)


@dataclass(frozen=True)
class Prototypes:
    """What one client uploads: means of the public classes, and means with counts of its others."""

    public: Tensor  # (public classes, m)
    local: Tensor  # (C, m), zero rows where the count is 0
    counts: Tensor  # (C,)


def write_prototypes(prototypes: Prototypes) -> Message:
    message: Message = {}
    if len(prototypes.public):
        message["public_prototypes"] = prototypes.public
    held = prototypes.counts.nonzero().squeeze(1)
    if len(held):
        message["local_prototypes"] = prototypes.local[held]
        message["classes"] = class_ids(held, len(prototypes.counts))
        message["counts"] = prototypes.counts[held].to(torch.int32)
    return message


def read_prototypes(message: Message, public_classes: Sequence[int], num_classes: int, width: int) -> Prototypes:
    """Checks everything that a client could get wrong: shapes, unknown or repeated classes, counts."""
    public = torch.zeros(0, width)
    if public_classes:
        public = read_matrix(message, "public_prototypes", len(public_classes), width)
    local, counts = torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.int64)
    if "local_prototypes" in message:
        classes, held = _vector(message, "classes"), _vector(message, "counts")
        if len(classes) != len(held) or len(classes.unique()) != len(classes):
            raise Refused("classes and counts do not belong together, or a class comes twice")
        if not set(classes.tolist()) <= set(range(num_classes)) - set(public_classes) or (held < 1).any():
            raise Refused("a local prototype is of a public or unknown class, or of no sample")
        local[classes] = read_matrix(message, "local_prototypes", len(classes), width)
        counts[classes] = held
    return Prototypes(public, local, counts)


@dataclass(frozen=True)
class ClassMeans:
    """The mean embedding of each class that one client holds, and of how many samples it is."""

    means: Tensor  # (C, m), zero rows where the count is 0
    counts: Tensor  # (C,)


def write_means(held: ClassMeans, *, named: bool = False, counted: bool = False) -> Message:
    """Only the rows of held classes; which they are is said where it is not all of them, or always if `named`."""
    rows = held.counts.nonzero().squeeze(1)
    message: Message = {"prototypes": held.means[rows]}
    if named or len(rows) < len(held.counts):
        message["classes"] = class_ids(rows, len(held.counts))
    if counted:
        message["counts"] = held.counts[rows].to(torch.int32)
    return message


def read_means(message: Message, num_classes: int, width: int, *, counted: bool = False) -> ClassMeans:
    """Checks everything that a client could get wrong; without counts every held class counts 1."""
    classes = _vector(message, "classes") if "classes" in message else torch.arange(num_classes)
    held = _vector(message, "counts") if counted else torch.ones_like(classes)
    if len(classes) != len(held) or len(classes.unique()) != len(classes):
        raise Refused("classes and counts do not belong together, or a class comes twice")
    if not len(classes) or not set(classes.tolist()) <= set(range(num_classes)) or (held < 1).any():
        raise Refused("a prototype is of an unknown class or of no sample, or there is none")
    found = read_matrix(message, "prototypes", len(classes), width)
    if not torch.isfinite(found).all():
        raise Refused("a prototype is not finite")
    means, counts = torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.int64)
    means[classes], counts[classes] = found, held
    return ClassMeans(means, counts)


def write_anchors(anchors: Tensor, defined: Tensor) -> Message:
    """Only the defined rows; which ones they are is said where it is not all of them."""
    if not defined.any():
        return {}
    message: Message = {"anchors": anchors[defined]}
    if not defined.all():
        message["classes"] = class_ids(defined.nonzero().squeeze(1), len(defined))
    return message


def read_anchors(message: Message, num_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Anchors (C, m) and which of them are defined (C,)."""
    anchors, defined = torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.bool)
    if "anchors" in message:
        classes = _vector(message, "classes") if "classes" in message else torch.arange(num_classes)
        if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < num_classes:
            raise Refused("anchors are of unknown classes")
        anchors[classes] = read_matrix(message, "anchors", len(classes), width)
        defined[classes] = True
    return anchors, defined


def read_matrix(message: Message, name: str, rows: int, columns: int) -> Tensor:
    found = message[name]
    if not isinstance(found, Tensor) or found.dtype != torch.float32 or found.shape != (rows, columns):
        raise Refused(f"{name} is not a float32 matrix of {rows} x {columns}")
    return found


def _vector(message: Message, name: str) -> Tensor:
    found = message[name]
    if not isinstance(found, Tensor) or found.dim() != 1 or found.is_floating_point():
        raise Refused(f"{name} is not a vector of whole numbers")
    return found.to(torch.int64)
