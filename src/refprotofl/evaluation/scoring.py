"""Scoring of a client's model: by its head and, where there are prototypes, by the nearest of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from refprotofl.core import digest_value
from refprotofl.evaluation.metrics import METRICS, ScoredSamples, compute, compute_all, confusion, sent_by_clients
from refprotofl.evaluation.plan import Plan
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.models import SplitModel
from refprotofl.wire import Message


@dataclass(frozen=True)
class TestSet:
    """The evaluated test inputs and, among them, those with the client's own class mix."""

    inputs: Tensor  # (T, channels, H, W) uint8, on the device; the rest is on the CPU
    labels: Tensor  # (T,)
    own: Tensor  # positions in 0..T-1
    shared: Tensor | None = None  # positions of the inputs that all clients are tested on; None for all of them

    def of_all(self, values: Tensor) -> Tensor:
        """Return the values (T, …) of the inputs that all clients are tested on."""
        return values if self.shared is None else values[self.shared]

    def planned(self, plan: Plan, num_classes: int) -> "TestSet":
        """Return the part that an evaluation scores: some samples of all clients', and of those that only this one has.

        Samples of the client's own class mix that are among all clients' are scored where those are.
        """
        common = torch.arange(len(self.labels)) if self.shared is None else self.shared
        alone = self.own[~torch.isin(self.own, common)]
        drawn = [_drawn(positions, self.labels, plan, num_classes) for positions in (common, alone)]
        rows = torch.cat(drawn).sort().values
        if len(rows) == len(self.labels):
            return self
        shared = None if self.shared is None else torch.isin(rows, common).nonzero().flatten()
        own = torch.isin(rows, self.own).nonzero().flatten()
        return TestSet(self.inputs[rows.to(self.inputs.device)], self.labels[rows], own, shared)

    def emptied(self) -> "TestSet":
        """Return a test set without inputs."""
        return TestSet(self.inputs[:0], self.labels[:0], self.own[:0], None)


def _drawn(positions: Tensor, labels: Tensor, plan: Plan, num_classes: int) -> Tensor:
    """Return those of the positions that an evaluation scores."""
    rows = plan.rows(labels[positions], num_classes)
    return positions if rows is None else positions[torch.from_numpy(rows)]


def scored_part(plan: Plan, inputs: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return those of common test samples (T, …) that an evaluation scores, and their labels."""
    rows = plan.rows(labels, num_classes)
    if rows is None:
        return inputs, labels
    chosen = torch.from_numpy(rows)
    return inputs[chosen.to(inputs.device)], labels[chosen]


@torch.no_grad()
def backbone_features(model: SplitModel, inputs: Tensor) -> Tensor:
    """Return features (T, width) on the device: the costly part, shared by all adapters on one backbone."""
    model.eval()
    batches = inputs.to(model.device).split(model.forward_batch)
    return torch.cat([model.features(model.prepare(batch)) for batch in batches])


FEATURES = "features"  # in the memo of a process


def common_features(memo: dict[str, Tensor], model: SplitModel, inputs: Tensor, *, keep: bool = True) -> Tensor:
    """Return the backbone's features of test inputs, (T, width), computed once for all models with its weights.

    Those of the newest backbone, and of as many inputs, stay in the memo of the process, whose models are all scored on
    the same inputs. With `keep` off they are looked up and not kept.
    """
    key = f"{FEATURES} {len(inputs)} {digest_value(model.read(('backbone',)))}"
    if key in memo:
        return memo[key]
    features = backbone_features(model, inputs)
    if keep:
        for old in [name for name in memo if name.startswith(FEATURES)]:
            del memo[old]
        memo[key] = features
    return features


@torch.no_grad()
def adapter_outputs(model: SplitModel, features: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return embeddings (T, m) and the head's logits (T, C); its outputs beyond the classes are not predictions."""
    embeddings = model.embed_features(features)
    return embeddings, model.head(embeddings)[:, :num_classes]


def adapter_predictions(
    model: SplitModel,
    features: Tensor,
    num_classes: int,
    anchors: Tensor | None = None,
    defined: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the `predictions` of the adapter that is loaded in the model."""
    return predictions(model, *adapter_outputs(model, features, num_classes), anchors, defined)


@torch.no_grad()
def predictions(
    model: SplitModel,
    embeddings: Tensor,
    logits: Tensor,
    anchors: Tensor | None = None,
    defined: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return predicted classes (T,) by the head (`""`) and by the nearest anchor (`"_prototype"`)."""
    predicted = {"": logits.argmax(dim=1)}
    if anchors is not None and defined is not None and defined.any():
        anchors, defined = anchors.to(model.device), defined.to(model.device)
        distances = torch.cdist(embeddings, torch.where(defined.unsqueeze(1), anchors, 0.0))  # (T, C)
        predicted["_prototype"] = distances.masked_fill(~defined, torch.inf).argmin(dim=1)
    return {suffix: classes.cpu() for suffix, classes in predicted.items()}


def scored(predicted: Tensor, logits: Tensor, labels: Tensor) -> ScoredSamples:
    """Return predicted classes (T,) and logits (T, C) with their labels (T,) as metrics take them."""
    counts = confusion(predicted.cpu(), labels.cpu(), logits.shape[1])
    return ScoredSamples(counts, labels.cpu().long().numpy(), logits.detach().cpu().numpy())


def model_metrics(
    model: SplitModel, inputs: Tensor, labels: Tensor, num_classes: int, memo: dict[str, Tensor] | None = None
) -> dict[str, float]:
    """Return every metric of one model as it is loaded, by its head. `memo`: that of clients with the same inputs."""
    features = common_features({} if memo is None or any(True for _ in model.buffers()) else memo, model, inputs)
    _, logits = adapter_outputs(model, features, num_classes)
    return compute_all(scored(logits.argmax(dim=1), logits, labels))


def count_correct(predicted: Mapping[str, Tensor], test: TestSet) -> dict[str, int]:
    """Return correct predictions by protocol, and the numbers of samples that they are out of."""
    counts: dict[str, int] = {"tested": len(test.of_all(test.labels)), "own_tested": len(test.own)}
    for suffix, classes in predicted.items():
        hits = classes == test.labels  # (T,)
        counts[f"personal{suffix}"] = int(test.of_all(hits).sum())
        counts[f"own{suffix}"] = int(hits[test.own].sum())
    return counts


def personal_scores(predicted: Tensor, logits: Tensor, test: TestSet) -> Message:
    """Return the message fields for metrics of protocol `personal` other than accuracy.

    The server derives metrics from the confusion matrix where it can; the others are sent by name.
    """
    personal = scored(test.of_all(predicted), test.of_all(logits), test.of_all(test.labels))
    values = {metric.name: compute(metric.name, personal) for metric in sent_by_clients(personal.num_classes)}
    known: Message = {name: value for name, value in values.items() if value is not None}
    return {"confusion": torch.from_numpy(personal.confusion).to(torch.int32), **known}


def accuracies(answer: Message) -> dict[str, float]:
    """Return one client's accuracies from the counts it sent; a protocol without samples is absent."""
    counts = {name: count for name, count in answer.items() if isinstance(count, int)}
    return {
        protocol.name: counts[protocol.name] / counts[protocol.out_of]
        for protocol in PROTOCOLS.values()
        if protocol.per_client and protocol.name in counts and counts.get(protocol.out_of, 0) > 0
    }


def client_metrics(answer: Message) -> dict[str, dict[str, float]]:
    """Return one client's metrics by protocol, from the fields of `count_correct` and `personal_scores`."""
    found = {protocol: {"accuracy": share} for protocol, share in accuracies(answer).items()}
    matrix = answer.get("confusion")
    if "personal" in found and isinstance(matrix, Tensor):
        derived = compute_all(ScoredSamples(matrix.numpy().astype("int64")))
        sent = {metric.name: answer[metric.name] for metric in sent_by_clients(len(matrix)) if metric.name in answer}
        values = {**derived, **{name: value for name, value in sent.items() if isinstance(value, float)}}
        found["personal"] |= {name: values[name] for name in METRICS if name in values}
    return found


def mean_metrics(scores: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the means over clients by protocol and metric; a client without a value is left out of that mean."""
    means: dict[str, dict[str, float]] = {}
    for protocol in PROTOCOLS:
        for metric in METRICS:
            values = [one[protocol][metric] for one in scores if metric in one.get(protocol, {})]
            if values:
                means.setdefault(protocol, {})[metric] = sum(values) / len(values)
    return means
