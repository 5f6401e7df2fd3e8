"""Class prototypes and anchors as fields of a message, and back.

The prototypes of several clients become one anchor for each class, by the aggregator that the experiment names.

Class means of a client's own samples: as they are, or noised where single samples are protected.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.experiment import Experiment
from refprotofl.methods import (
    Client,
    Dense,
    Fields,
    Refused,
    Samples,
    Scope,
    ValidatedMessage,
    class_ids,
    embed,
    erpa,
    whole_numbers,
)
from refprotofl.methods.base.screening import longest_row
from refprotofl.privacy import open_samples
from refprotofl.wire import Message


def anchor_fields(scope: Scope, dtype: torch.dtype = torch.float32) -> Fields:
    """Return the fields of the anchors of defined classes, and of their ids where not all are defined."""
    return {"anchors": _rows(scope, dtype, optional=True), "classes": _class_ids(scope)}


def mean_fields(scope: Scope, *, counted: bool = False) -> Fields:
    """Return the fields that `write_means` writes."""
    counts = {"counts": whole_numbers(None, low=1)} if counted else {}
    return {"prototypes": _rows(scope), "classes": _class_ids(scope), **counts}


def prototype_fields(scope: Scope, dtype: torch.dtype = torch.float32, *, optional: bool = False) -> Fields:
    """Return the fields that `write_prototypes` writes: of public classes, and of others with their counts."""
    covered = len(scope.experiment.public.classes or ())
    public = Dense((covered, scope.width), (dtype,), kind="prototype_values", optional=optional)
    return {
        **({"public_prototypes": public} if covered else {}),
        "local_prototypes": _rows(scope, dtype, optional=True),
        "classes": _class_ids(scope),
        "counts": whole_numbers(None, low=1, optional=True),
    }


def _rows(scope: Scope, dtype: torch.dtype = torch.float32, *, optional: bool = False) -> Dense:
    return Dense((None, scope.width), (dtype,), kind="prototype_values", optional=optional)


def _class_ids(scope: Scope) -> Dense:
    return whole_numbers(None, low=0, high=scope.classes - 1, optional=True)


def no_anchors(experiment: Experiment) -> tuple[Tensor, Tensor]:
    """Return the initial anchors (C, m), of which none is defined (C,)."""
    classes = experiment.known_input.num_classes
    return torch.zeros(classes, experiment.model.embedding), torch.zeros(classes, dtype=torch.bool)


@dataclass(frozen=True)
class Prototypes:
    """The prototypes of one client: means of the public classes, and means with counts of its others."""

    public: Tensor  # (public classes, m)
    local: Tensor  # (C, m), zero rows where the count is 0
    counts: Tensor  # (C,)

    def sizes(self) -> dict[str, float]:
        return {"prototypes": longest_row(self.public, self.local)}


def write_prototypes(prototypes: Prototypes, dtype: torch.dtype = torch.float32) -> Message:
    message: Message = {}
    if len(prototypes.public):
        message["public_prototypes"] = prototypes.public.to(dtype)
    held = prototypes.counts.nonzero().squeeze(1)
    if len(held):
        message["local_prototypes"] = prototypes.local[held].to(dtype)
        message["classes"] = class_ids(held, len(prototypes.counts))
        message["counts"] = prototypes.counts[held].to(torch.int32)
    return message


def read_prototypes(
    message: ValidatedMessage, public_classes: Sequence[int], num_classes: int, width: int
) -> Prototypes:
    """Check what must fit between the fields: as many rows as classes, no class twice, none that is public."""
    public = message.tensor("public_prototypes").to(torch.float32) if public_classes else torch.zeros(0, width)
    local, counts = torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.int64)
    if "local_prototypes" in message:
        classes, held = message.tensor("classes").long(), message.tensor("counts").long()
        if not set(classes.tolist()).isdisjoint(public_classes):
            raise Refused("a local prototype is of a public class")
        local[classes] = _rows_of(message, "local_prototypes", classes, held)
        counts[classes] = held
    return Prototypes(public, local, counts)


def _rows_of(message: ValidatedMessage, name: str, classes: Tensor, counts: Tensor) -> Tensor:
    """Return the rows of a field, one for each class, if each class comes once."""
    rows = message.tensor(name).to(torch.float32)
    if not len(rows) == len(classes) == len(counts) or len(classes.unique()) != len(classes):
        raise Refused(f"{name}, classes and counts do not belong together, or a class comes twice")
    return rows


@dataclass(frozen=True)
class ClassMeans:
    """The mean embedding of each class that one client holds, and of how many samples it is."""

    means: Tensor  # (C, m), zero rows where the count is 0
    counts: Tensor  # (C,)

    def sizes(self) -> dict[str, float]:
        return {"prototypes": longest_row(self.means)}


def write_means(held: ClassMeans, *, named: bool = False, counted: bool = False) -> Message:
    """Write the rows of held classes, and their ids unless all are held and `named` is false."""
    rows = held.counts.nonzero().squeeze(1)
    message: Message = {"prototypes": held.means[rows]}
    if named or len(rows) < len(held.counts):
        message["classes"] = class_ids(rows, len(held.counts))
    if counted:
        message["counts"] = held.counts[rows].to(torch.int32)
    return message


def read_means(message: ValidatedMessage, num_classes: int, width: int, *, counted: bool = False) -> ClassMeans:
    """Check what must fit between the fields; without counts every held class counts 1."""
    classes = message.tensor("classes").long() if "classes" in message else torch.arange(num_classes)
    held = message.tensor("counts").long() if counted else torch.ones_like(classes)
    if not len(classes):
        raise Refused("there is no prototype")
    means, counts = torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.int64)
    means[classes], counts[classes] = _rows_of(message, "prototypes", classes, held), held
    return ClassMeans(means, counts)


def write_anchors(anchors: Tensor, defined: Tensor, dtype: torch.dtype = torch.float32) -> Message:
    """Write the defined rows, and their class ids unless all are defined."""
    if not defined.any():
        return {}
    message: Message = {"anchors": anchors[defined].to(dtype)}
    if not defined.all():
        message["classes"] = class_ids(defined.nonzero().squeeze(1), len(defined))
    return message


def read_anchors(message: ValidatedMessage, num_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Read anchors (C, m) and the mask (C,) of those that are defined."""
    anchors, defined = torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.bool)
    if "anchors" in message:
        classes = message.tensor("classes").long() if "classes" in message else torch.arange(num_classes)
        anchors[classes] = _rows_of(message, "anchors", classes, classes)
        defined[classes] = True
    return anchors, defined


def with_quorum(experiment: Experiment, counts: Tensor) -> Tensor:
    """Return the counts (clients, C), with 0 for a class that fewer clients sent than `min-senders`."""
    return counts * ((counts > 0).sum(dim=0) >= experiment.min_senders)


def class_means(
    client: Client, samples: Samples, *, without: Tensor | None = None, unit: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the means (C, m) and counts (C,) of the samples' embeddings under the loaded weights.

    `without` are classes to leave out, which the server knows; `unit` scales embeddings to length 1.
    """
    data, noise = open_samples(samples)
    width, classes = client.model.feature.out_features, client.num_classes
    if noise is not None and without is not None and len(without) == classes:  # nothing is revealed, nothing is spent
        return torch.zeros(classes, width), torch.zeros(classes, dtype=torch.int64)
    rows = data.rows if without is None else data.rows[~torch.isin(data.own_labels, without)]
    embeddings = embed(client.model, data.inputs_of(rows))
    embeddings = functional.normalize(embeddings) if unit else embeddings
    if noise is None:
        return erpa.class_prototypes(embeddings, data.labels[rows], classes)
    means, counts = noise.class_means(embeddings, data.labels[rows], classes)
    if without is not None:
        counts[without] = 0
    return means * (counts > 0).unsqueeze(1), counts
