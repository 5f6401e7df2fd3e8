"""RefProtoFL (Wu, Li et al.) in one plain file: its six algorithms, top to bottom, and a demonstration.

This is the oracle that the package is tested against: it prefers the obvious to the fast and imports nothing
of ours. Equation and line numbers are those printed in the paper; what it leaves open is settled where it
comes up. The model of a client is

    image -> backbone -> feature layer -> embedding -> head -> logits

The backbone is private. Feature layer and head are the adapter: all clients share it, it travels as a vector.
Letters in shape comments: n images, m embedding width, C classes, d adapter parameters.

    python reference/refprotofl_plain.py        # ten rounds on scikit-learn's digits, a few seconds
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Layer = tuple[Floats, Floats]  # weight (outputs, inputs), bias (outputs,)
Dataset = tuple[Floats, Integers]  # images (n, inputs), labels (n,)


class Network(TypedDict):
    """The starting point of every client: a linear layer is a (weight, bias) pair."""

    backbone: list[Layer]
    feature: Layer
    head: Layer


@dataclass
class Round:
    """What can be seen after a round."""

    adapter: Floats  # (d,) the server's, after aggregation
    anchors: Floats  # (C, m) what the clients trained towards; NaN where not defined
    defined: Flags  # (C,) the classes that have an anchor
    masks: dict[int, Flags]  # participant -> (d,) the coordinates it sent
    backbones: dict[int, list[Floats]]  # every client -> weight, bias, weight, bias, ...
    losses: dict[int, Floats]  # participant -> (steps, 2) cross-entropy and alignment loss of each batch


# The model


def embed(images: Tensor, backbone: Sequence[Tensor], feature: Sequence[Tensor]) -> Tensor:
    """z(x) = F(x; backbone, feature part), Eq. (9): what the head reads."""
    hidden = images  # (n, inputs)
    for weight, bias in zip(backbone[0::2], backbone[1::2], strict=True):
        hidden = functional.relu(functional.linear(hidden, weight, bias))  # (n, outputs of this layer)
    return functional.relu(functional.linear(hidden, feature[0], feature[1]))  # (n, m)


def join_adapter(feature: Layer, head: Layer) -> Floats:
    """Feature weight, feature bias, head weight, head bias, each row by row, as one vector (d,)."""
    return np.concatenate([part.ravel() for part in (*feature, *head)]).astype(np.float32)


def split_adapter(adapter: Floats, width: int, num_classes: int) -> tuple[list[Floats], list[Floats]]:
    """The adapter is (feature part, head), Eq. (8); `width` is m."""
    head_size = num_classes * width + num_classes
    feature, head = adapter[:-head_size], adapter[-head_size:]
    feature_parts = [feature[:-width].reshape(width, -1), feature[-width:]]  # (m, inputs), (m,)
    head_parts = [head[:-num_classes].reshape(num_classes, width), head[-num_classes:]]  # (C, m), (C,)
    return feature_parts, head_parts


def tensors(arrays: Sequence[Floats], trainable: bool = False) -> list[Tensor]:
    """Copies, so that training never writes into the arrays it started from."""
    return [torch.tensor(array, requires_grad=trainable) for array in arrays]


# APUD: send the adapter parameters that moved most


def apud_client(local: Floats, broadcast: Floats, keep: float) -> tuple[Floats, Flags]:
    """Algorithm 1: the client's masked adapter (d,) and its mask (d,).

    The paper's budget K is max(1, floor(keep * d)). Exactly K are sent; of equal updates the lower index.
    """
    budget = max(1, math.floor(keep * len(broadcast)))
    magnitude = np.abs(local - broadcast)  # Line 1, Eq. (3): (d,)
    selected = np.argsort(-magnitude, kind="stable")[:budget]  # Line 2, Eq. (4): (budget,)
    mask = np.zeros(len(broadcast), dtype=bool)  # Line 3
    mask[selected] = True  # Lines 4 to 6, Eq. (5)
    return np.where(mask, local, np.float32(0)), mask  # Line 7


def apud_server(broadcast: Floats, uploads: Sequence[tuple[Floats, Flags, int]]) -> Floats:
    """Algorithm 2, all coordinates at once. An upload is (masked adapter (d,), mask (d,), number of samples).

    The mask says who sent a coordinate, never the value: a parameter may well be 0.
    """
    weighted_sum = np.zeros(len(broadcast), dtype=np.float64)
    senders_samples = np.zeros(len(broadcast), dtype=np.float64)
    for values, mask, num_samples in uploads:  # in the order of client ids
        weighted_sum[mask] += num_samples * values[mask].astype(np.float64)
        senders_samples[mask] += num_samples  # Line 4: Z, summed over the senders of Eq. (6) only
    sent = senders_samples > 0  # Line 3
    adapter = broadcast.copy()  # Line 7: coordinates without senders stay
    adapter[sent] = (weighted_sum[sent] / senders_samples[sent]).astype(np.float32)  # Line 5, Eq. (7)
    return adapter


# ERPA: align embeddings with anchors that all clients share


def class_mean(embeddings: Floats, labels: Integers, label: int) -> Floats:
    """The prototype of a class: the mean of its embeddings, (n, m) -> (m,). Summed in float64."""
    mean: Floats = embeddings[labels == label].mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def erpa_client_prototypes(
    backbone: Sequence[Floats], feature: Sequence[Floats], public: Dataset, private: Dataset, num_classes: int
) -> tuple[dict[int, Floats], dict[int, tuple[Floats, int]]]:
    """Algorithm 3: public prototypes {class: (m,)}, and local {class: ((m,), count)} where public has none.

    It runs before local training: on the private backbone as it is and the feature part just broadcast.
    """
    public_labels, private_labels = public[1], private[1]
    with torch.no_grad():
        weights = tensors(backbone), tensors(feature)
        public_embeddings = embed(torch.tensor(public[0]), *weights).numpy()  # (public n, m)
        private_embeddings = embed(torch.tensor(private[0]), *weights).numpy()  # (n, m)
    public_prototypes: dict[int, Floats] = {}
    local_prototypes: dict[int, tuple[Floats, int]] = {}
    for label in range(num_classes):  # Line 1
        count = int((private_labels == label).sum())
        if (public_labels == label).any():  # Line 2
            public_prototypes[label] = class_mean(public_embeddings, public_labels, label)  # Line 3, Eq. (10)
        elif count > 0:  # Line 5
            prototype = class_mean(private_embeddings, private_labels, label)  # Line 6, Eq. (11)
            local_prototypes[label] = prototype, count
    return public_prototypes, local_prototypes


def erpa_server_prototypes(
    uploads: Sequence[tuple[Mapping[int, Floats], Mapping[int, tuple[Floats, int]]]], covered: Sequence[bool]
) -> tuple[dict[int, Floats], dict[int, Floats]]:
    """Algorithm 4: external-reference and global prototypes, {class: (m,)}; a class may be in neither.

    `covered` (C,) says which classes the public set has: 1 - delta in Eq. (12). Uploads come in client order.
    """
    external: dict[int, Floats] = {}
    aggregated: dict[int, Floats] = {}
    for label, in_public in enumerate(covered):  # Lines 1 and 2
        if in_public and uploads:
            # Line 4, Eq. (14): uniform over all participants, whether or not they hold the class themselves
            stacked = np.stack([public[label] for public, _ in uploads])  # (participants, m)
            external[label] = stacked.mean(axis=0, dtype=np.float64).astype(np.float32)
        elif not in_public:
            senders = [local[label] for _, local in uploads if label in local]  # Line 6, Eq. (13)
            if senders:  # Line 7
                weighted_sum = sum(count * prototype.astype(np.float64) for prototype, count in senders)
                total = sum(count for _, count in senders)
                aggregated[label] = np.asarray(weighted_sum / total, dtype=np.float32)  # Line 8, Eq. (15)
    return external, aggregated


def class_anchors(
    external: Mapping[int, Floats], aggregated: Mapping[int, Floats], num_classes: int, width: int
) -> tuple[Floats, Flags]:
    """Algorithm 5, lines 1 to 3: anchors (C, m) and which are defined (C,), the same for every client.

    Eq. (16) adds two terms, one times 0. Here one is chosen, since 0 times undefined is not 0.
    """
    anchors = np.full((num_classes, width), np.nan, dtype=np.float32)
    defined = np.zeros(num_classes, dtype=bool)
    for label, prototype in [*aggregated.items(), *external.items()]:  # an external reference wins
        anchors[label] = prototype
        defined[label] = True
    return anchors, defined


def alignment_loss(embeddings: Tensor, labels: Tensor, anchors: Tensor, defined: Tensor) -> Tensor:
    """Eq. (17) as a mean over the batch; a sample whose class has no anchor adds 0 and still counts."""
    anchored = defined[labels]  # (n,)
    gaps = embeddings[anchored] - anchors[labels[anchored]]  # (anchored n, m)
    return gaps.square().sum() / len(labels)


def erpa_client_train(
    backbone: Sequence[Floats], feature: Sequence[Floats], head: Sequence[Floats], private: Dataset,
    anchors: Floats, defined: Flags, order: Integers, batch_size: int, align: float,
    learning_rate: float, momentum: float, weight_decay: float,
) -> tuple[list[Floats], Floats, Floats]:  # fmt: skip
    """Algorithm 5, lines 4 to 6: the new backbone, the local adapter (d,) and the losses (steps, 2).

    `order` (epochs, n) gives the order of the samples in each local epoch. The paper's sums over samples in
    Eqs. (17) and (18) become means over the batch; its lambda, never given, is align / m.
    """
    images, labels = torch.tensor(private[0]), torch.tensor(private[1])  # (n, inputs), (n,)
    fixed_anchors, has_anchor = torch.tensor(anchors), torch.tensor(defined)  # constants during the round
    own, shared, classifier = (tensors(part, trainable=True) for part in (backbone, feature, head))  # Line 4
    parameters = [*own, *shared, *classifier]
    # A new optimiser: no momentum is left from earlier rounds.
    optimiser = torch.optim.SGD(parameters, learning_rate, momentum, weight_decay=weight_decay)
    losses = []
    for epoch_order in torch.tensor(order):
        for batch in epoch_order.split(batch_size):  # the last one may be smaller
            embeddings = embed(images[batch], own, shared)  # (batch, m)
            logits = functional.linear(embeddings, classifier[0], classifier[1])  # (batch, C)
            cross_entropy = functional.cross_entropy(logits, labels[batch])  # Eq. (18)
            alignment = alignment_loss(embeddings, labels[batch], fixed_anchors, has_anchor)  # Eq. (17)
            loss = cross_entropy + (align / embeddings.shape[1]) * alignment  # Line 5, Eq. (19)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            losses.append((cross_entropy.item(), alignment.item()))
    new_backbone = [tensor.detach().numpy() for tensor in own]  # Line 6: it stays with the client
    local_adapter = torch.cat([tensor.detach().flatten() for tensor in (*shared, *classifier)]).numpy()
    return new_backbone, local_adapter, np.array(losses, dtype=np.float32)


# RefProtoFL


def run(
    clients: Sequence[Dataset], public: Dataset, num_classes: int, init: Network, rounds: int, *,
    keep: float, align: float, learning_rate: float, momentum: float, weight_decay: float,
    batch_size: int, epochs: int,
    participants: Callable[[int], Sequence[int]], batch_order: Callable[[int, int], Integers],
) -> list[Round]:  # fmt: skip
    """Algorithm 6, rounds counted from 1.

    `participants(round)` are the clients of a round, `batch_order(client, round)` (epochs, n) is the order of
    a client's samples in each local epoch. Every client has at least one sample and starts from `init`.
    """
    width = len(init["feature"][1])
    covered = [bool((public[1] == label).any()) for label in range(num_classes)]  # 1 - delta, Eq. (12)
    adapter = join_adapter(init["feature"], init["head"])  # Line 1
    common_start = [array for layer in init["backbone"] for array in layer]
    backbones = {client: common_start for client in range(len(clients))}  # training replaces, never writes
    history = []
    for round_number in range(1, rounds + 1):  # Line 2
        cohort = sorted(participants(round_number))
        feature, head = split_adapter(adapter, width, num_classes)  # Line 3: the broadcast

        prototypes = [
            erpa_client_prototypes(backbones[client], feature, public, clients[client], num_classes)
            for client in cohort  # Lines 4 to 6, Algorithm 3
        ]
        external, aggregated = erpa_server_prototypes(prototypes, covered)  # Line 7, Algorithm 4
        anchors, defined = class_anchors(external, aggregated, num_classes, width)  # Line 8, Eq. (16)

        updates, masks, losses = [], {}, {}
        for client in cohort:
            order = batch_order(client, round_number)
            assert order.shape == (epochs, len(clients[client][1])), f"batch order of client {client}"
            backbones[client], local_adapter, losses[client] = erpa_client_train(  # Line 10, Algorithm 5
                backbones[client], feature, head, clients[client], anchors, defined, order, batch_size, align,
                learning_rate, momentum, weight_decay,
            )  # fmt: skip
            values, masks[client] = apud_client(local_adapter, adapter, keep)  # Line 13, Algorithm 1
            updates.append((values, masks[client], len(clients[client][1])))
        adapter = apud_server(adapter, updates)  # Line 15, Algorithm 2

        copies = {client: [array.copy() for array in arrays] for client, arrays in backbones.items()}
        history.append(Round(adapter.copy(), anchors, defined, masks, copies, losses))
    return history  # Line 17: the last adapter, and the private backbones without which it cannot classify


# A demonstration


def accuracy(backbone: Sequence[Floats], adapter: Floats, width: int, test: Dataset) -> float:
    """Share of test images that a client's own backbone with the newest adapter classifies rightly."""
    feature, head = split_adapter(adapter, width, num_classes=10)
    with torch.no_grad():
        embeddings = embed(torch.tensor(test[0]), tensors(backbone), tensors(feature))  # (n, m)
        logits = functional.linear(embeddings, *tensors(head))  # (n, C)
    return float((logits.argmax(dim=1).numpy() == test[1]).mean())


def main() -> None:
    """Digits: 5 clients with skewed classes, 3 of them in a round, a public set with 8 of the 10 classes."""
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    images, labels = ((images - 8) / 6).astype(np.float32), labels.astype(np.int64)  # (1797, 64), (1797,)
    test_index, train_index = np.split(random.permutation(len(labels)), [len(labels) // 5])

    public_index: list[int] = []
    shares: list[list[int]] = [[] for _ in range(5)]
    for label in range(10):
        of_class = train_index[labels[train_index] == label]
        if label < 8:
            public_index += of_class[:5].tolist()  # no longer private data of anybody
            of_class = of_class[5:]
        cuts = np.cumsum(random.dirichlet([0.5] * 5))[:-1] * len(of_class)
        for share, part in zip(shares, np.split(of_class, cuts.astype(int)), strict=True):
            share += part.tolist()
    clients = [(images[share], labels[share]) for share in shares]

    def layer(inputs: int, outputs: int) -> Layer:
        weight_and_bias = random.uniform(-1, 1, (outputs, inputs + 1)).astype(np.float32) / math.sqrt(inputs)
        return weight_and_bias[:, :-1], weight_and_bias[:, -1]

    def participants(round_number: int) -> list[int]:
        return sorted(np.random.default_rng([1, round_number]).permutation(5)[:3].tolist())

    def batch_order(client: int, round_number: int) -> Integers:
        stream = np.random.default_rng([2, client, round_number])
        return np.stack([stream.permutation(len(shares[client])) for _ in range(2)])

    init: Network = {"backbone": [layer(64, 64)], "feature": layer(64, 32), "head": layer(32, 10)}
    history = run(
        clients, (images[public_index], labels[public_index]), 10, init, rounds=10, keep=0.1, align=1.0,
        learning_rate=0.05, momentum=0.9, weight_decay=1e-4, batch_size=32, epochs=2,
        participants=participants, batch_order=batch_order,
    )  # fmt: skip
    print(f"{len(history[0].adapter)} adapter parameters; samples of the clients: {[len(s) for s in shares]}")
    test = images[test_index], labels[test_index]
    for number, state in enumerate(history, start=1):
        sent = {client: int(mask.sum()) for client, mask in state.masks.items()}
        mean = np.mean([accuracy(backbone, state.adapter, 32, test) for backbone in state.backbones.values()])
        print(f"round {number:2d}  parameters sent by client {sent}  mean accuracy of all clients {mean:.3f}")


if __name__ == "__main__":
    main()
