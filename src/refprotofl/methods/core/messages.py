"""The messages that all methods have in common: joining and scores; and what the shapes of fields depend on."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from refprotofl.basics.parts import Parts
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.evaluation.scoring import LARGEST_LOSS
from refprotofl.experiment import Experiment
from refprotofl.methods.core.fields import Dense, Exchange, Fields, Real, Received, Whole, whole_numbers
from refprotofl.methods.core.refusal import Refused
from refprotofl.models import SplitModel

MOST_TESTED = 2**31 - 1  # samples of any test set: what the confusion matrix can count


@dataclass(frozen=True)
class Scope:
    """What the fields of an experiment's messages depend on; both sides have it."""

    experiment: Experiment
    model: SplitModel
    parts: Parts
    options: Any

    @property
    def shared(self) -> int:
        """P, the number of shared parameters."""
        return sum(self.model.sizes(self.parts))

    @property
    def classes(self) -> int:
        return self.experiment.known_input.num_classes

    @property
    def width(self) -> int:
        """m, of the embedding."""
        return self.experiment.model.embedding


def class_ids(classes: Tensor, num_classes: int) -> Tensor:
    """Class numbers in the narrowest type that holds them."""
    return classes.to(torch.uint8 if num_classes <= 256 else torch.int16)


def declare(
    scope: Scope,
    *,
    evaluate: Fields | None = None,
    greeting: Fields | None = None,
    join: Fields | None = None,
    **verbs: Exchange,
) -> dict[str, Exchange]:
    """A method's verbs beside those that all methods have: joining and being scored.

    `evaluate` is what a client is sent to be scored with; `greeting` what it is sent beside the public set when it
    joins, and `join` what it tells then beside its number of samples.
    """
    images = Dense((None, *scope.experiment.known_input.shape), (torch.uint8,), optional=True)  # the public set's
    labels = whole_numbers(None, low=0, high=scope.classes - 1, optional=True)
    number, score = Whole(low=0, high=MOST_TESTED), Whole(low=0, high=MOST_TESTED, optional=True)
    counted: Fields = {one.name: score for one in PROTOCOLS.values() if one.per_client}
    matrix = Dense((scope.classes, scope.classes), (torch.int32,), low=0, optional=True)  # of `personal`
    loss = Real(low=0, high=LARGEST_LOSS, optional=True)  # of `personal`
    scores = {"tested": number, "own_tested": number, **counted, "confusion": matrix, "loss": loss}
    return {
        "join": Exchange(
            {"images": images, "labels": labels, **(greeting or {})}, {"samples": Whole(low=1), **(join or {})}
        ),
        **verbs,
        "evaluate": Exchange(evaluate or {}, scores),
    }


def read_scores(client: int, counts: Received) -> Received:
    """A client's correct predictions, of which there are no more than samples."""
    for name, protocol in PROTOCOLS.items():
        if name in counts and counts.whole(name) > counts.whole(protocol.out_of):
            raise Refused(f"{name} = {counts[name]} is more than {protocol.out_of} = {counts[protocol.out_of]}")
    if "confusion" in counts:
        matrix = counts.tensor("confusion").long()
        if [int(matrix.sum()), int(matrix.trace())] != [counts["tested"], counts.get("personal")]:
            raise Refused("confusion does not add up to the samples tested and those that were right")
    return counts
