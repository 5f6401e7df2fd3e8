"""How a client's model is scored: by its head and, where there are prototypes, by the nearest of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.models import FORWARD_BATCH, SplitModel
from refprotofl.wire import Message

LARGEST_LOSS = 1e9  # a model that has diverged has no loss that means anything


@dataclass(frozen=True)
class TestSet:
    """The evaluated test images and, among them, those with the client's own class mix."""

    images: Tensor  # (T, channels, H, W) uint8, on the device; the rest is on the CPU
    labels: Tensor  # (T,)
    own: Tensor  # positions in 0..T-1
    shared: Tensor | None = None  # positions of those that all clients are tested on; None if that is all of them

    def of_all(self, values: Tensor) -> Tensor:
        """Of values (T, …) for each image those of the images that all clients are tested on."""
        return values if self.shared is None else values[self.shared]

    def emptied(self) -> "TestSet":
        """The same without any image."""
        return TestSet(self.images[:0], self.labels[:0], self.own[:0], None)


@torch.no_grad()
def backbone_features(model: SplitModel, images: Tensor) -> Tensor:
    """(T, width), on the device: the costly part, shared by all adapters that are tried on one backbone."""
    model.eval()
    batches = images.to(model.device).split(FORWARD_BATCH)
    return torch.cat([model.backbone(model.prepare(batch)) for batch in batches])


@torch.no_grad()
def adapter_outputs(model: SplitModel, features: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Embeddings (T, m), and the head's logits (T, C): its outputs beyond the classes are not predictions."""
    embeddings = model.embed_features(features)
    return embeddings, model.head(embeddings)[:, :num_classes]


def adapter_predictions(
    model: SplitModel,
    features: Tensor,
    num_classes: int,
    anchors: Tensor | None = None,
    defined: Tensor | None = None,
) -> dict[str, Tensor]:
    """`predictions` of the adapter that is in the model."""
    return predictions(model, *adapter_outputs(model, features, num_classes), anchors, defined)


@torch.no_grad()
def predictions(
    model: SplitModel,
    embeddings: Tensor,
    logits: Tensor,
    anchors: Tensor | None = None,
    defined: Tensor | None = None,
) -> dict[str, Tensor]:
    """Predicted classes (T,) by the head (`""`) and by the nearest anchor (`"_prototype"`)."""
    predicted = {"": logits.argmax(dim=1)}
    if anchors is not None and defined is not None and defined.any():
        anchors, defined = anchors.to(model.device), defined.to(model.device)
        distances = torch.cdist(embeddings, torch.where(defined.unsqueeze(1), anchors, 0.0))  # (T, C)
        predicted["_prototype"] = distances.masked_fill(~defined, torch.inf).argmin(dim=1)
    return {rule: classes.cpu() for rule, classes in predicted.items()}


def mean_loss(logits: Tensor, labels: Tensor) -> float | None:
    """Cross-entropy, the mean over samples; None where there are none, or where it is no number that can be shown."""
    if not len(labels):
        return None
    loss = float(cross_entropy(logits.cpu().double(), labels.long()))
    return loss if 0 <= loss <= LARGEST_LOSS else None


def accuracy(model: SplitModel, images: Tensor, labels: Tensor, num_classes: int) -> float:
    """Of one model as it is loaded, by its head."""
    predicted = adapter_predictions(model, backbone_features(model, images), num_classes)[""]
    return float((predicted == labels).to(torch.float64).mean())


def count_correct(predicted: Mapping[str, Tensor], test: TestSet) -> dict[str, int]:
    """Correct predictions by protocol; with `own` beside it how many samples it is out of."""
    counts: dict[str, int] = {"tested": len(test.of_all(test.labels)), "own_tested": len(test.own)}
    for rule, classes in predicted.items():
        hits = classes == test.labels  # (T,)
        counts[f"personal{rule}"] = int(test.of_all(hits).sum())
        counts[f"own{rule}"] = int(hits[test.own].sum())
    return counts


def accuracies(answer: Message) -> dict[str, float]:
    """One client's accuracies from the counts it answered; a protocol without samples is absent."""
    counts = {name: count for name, count in answer.items() if isinstance(count, int)}
    return {
        protocol.name: counts[protocol.name] / counts[protocol.out_of]
        for protocol in PROTOCOLS.values()
        if protocol.per_client and protocol.name in counts and counts.get(protocol.out_of, 0) > 0
    }
