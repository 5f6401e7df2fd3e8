"""The oracle against numbers worked out by hand, and against gradients by finite differences in float64."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray


def load_reference() -> ModuleType:
    path = Path(__file__).parents[2] / "reference" / "refprotofl_plain.py"
    spec = importlib.util.spec_from_file_location("refprotofl_plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = load_reference()


def floats(*values: object) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


# APUD: methods.md 8.2, items 4 to 6


def test_two_clients_send_two_of_four_coordinates() -> None:
    broadcast = floats(0, 0, 0, 0)
    values_a, mask_a = plain.apud_client(floats(3, 1, 0, -2), broadcast, keep=0.5)
    values_b, mask_b = plain.apud_client(floats(1, -4, 0.5, 0), broadcast, keep=0.5)
    assert mask_a.tolist() == [True, False, False, True]
    assert mask_b.tolist() == [True, True, False, False]
    assert values_a.tolist() == [3, 0, 0, -2]  # nothing unselected leaves the client
    assert values_b.tolist() == [1, -4, 0, 0]
    adapter = plain.apud_server(broadcast, [(values_a, mask_a, 30), (values_b, mask_b, 10)])
    assert adapter.tolist() == [2.5, -4, 0, -2]
    assert adapter.dtype == np.float32


def test_a_coordinate_that_no_client_sends_keeps_its_value() -> None:
    broadcast = floats(7, 8, 9)
    adapter = plain.apud_server(broadcast, [(floats(0, 5, 0), np.array([False, True, False]), 4)])
    assert adapter.tolist() == [7, 5, 9]
    assert plain.apud_server(broadcast, []).tolist() == [7, 8, 9]
    assert broadcast.tolist() == [7, 8, 9]  # the input is not written into


def test_a_sent_zero_counts_because_the_mask_decides() -> None:
    broadcast = floats(1, 1)
    values, mask = plain.apud_client(floats(0, 1.1), broadcast, keep=0.5)
    assert mask.tolist() == [True, False]
    assert plain.apud_server(broadcast, [(values, mask, 3)]).tolist() == [0, 1]


def test_equal_updates_go_in_index_order_and_exactly_as_many_as_announced() -> None:
    _, mask = plain.apud_client(floats(1, -1, 1, -1), floats(0, 0, 0, 0), keep=0.5)
    assert mask.tolist() == [True, True, False, False]
    _, unmoved = plain.apud_client(floats(2, 2, 2, 2), floats(2, 2, 2, 2), keep=0.5)
    assert unmoved.tolist() == [True, True, False, False]


@pytest.mark.parametrize(("keep", "sent"), [(0.01, 1), (0.19, 1), (0.2, 2), (0.39, 3), (1.0, 10)])
def test_number_sent_is_the_floor_but_at_least_one(keep: float, sent: int) -> None:
    _, mask = plain.apud_client(np.arange(10, dtype=np.float32), np.zeros(10, dtype=np.float32), keep)
    assert mask.sum() == sent


# ERPA: methods.md 8.2, items 7 and 8


def test_external_prototypes_are_uniform_and_global_ones_count_weighted() -> None:
    # Class 0 is in the public set, class 1 is not; clients hold 1 and 3 samples of it; class 2 is nowhere.
    uploads = [
        ({0: floats(0)}, {1: (floats(0), 1)}),
        ({0: floats(4)}, {1: (floats(4), 3)}),
    ]
    external, aggregated = plain.erpa_server_prototypes(uploads, [True, False, False])
    assert {label: row.tolist() for label, row in external.items()} == {0: [2]}
    assert {label: row.tolist() for label, row in aggregated.items()} == {1: [3]}


def test_global_prototypes_leave_out_clients_without_the_class() -> None:
    uploads: list[Any] = [({}, {0: (floats(5, 1), 2)}), ({}, {})]
    external, aggregated = plain.erpa_server_prototypes(uploads, [False])
    assert external == {}
    assert aggregated[0].tolist() == [5, 1]


def test_anchors_choose_so_that_an_undefined_term_does_not_spread() -> None:
    external = {0: floats(1, 2)}
    aggregated = {0: floats(np.nan, np.nan), 1: floats(3, 4)}
    anchors, defined = plain.class_anchors(external, aggregated, num_classes=3, width=2)
    assert anchors[:2].tolist() == [[1, 2], [3, 4]]
    assert defined.tolist() == [True, True, False]


def test_alignment_loss_counts_samples_without_anchor_in_the_mean() -> None:
    embeddings = torch.tensor([[1.0, 2.0], [5.0, 5.0], [0.0, 0.0], [9.0, 9.0]], requires_grad=True)
    anchors = torch.tensor([[0.0, 0.0], [2.0, 1.0], [np.nan, np.nan]])
    loss = plain.alignment_loss(embeddings, torch.tensor([0, 1, 0, 2]), anchors, torch.tensor([True, True, False]))
    assert loss.item() == (5 + 25 + 0) / 4
    (gradient,) = torch.autograd.grad(loss, embeddings)
    assert gradient.tolist() == [[0.5, 1], [1.5, 2], [0, 0], [0, 0]]  # 2 (z - anchor) / 4
    none = plain.alignment_loss(embeddings, torch.tensor([2, 2, 2, 2]), anchors, torch.tensor([True, True, False]))
    assert none.item() == 0


def test_client_prototypes_are_means_after_the_relu_and_public_data_comes_first() -> None:
    # embedding = relu(x) by two identity layers; class 0 is public, class 1 only private, class 2 nowhere
    backbone = feature = [np.eye(2, dtype=np.float32), floats(0, 0)]
    public = floats([1, 0], [3, -4]), np.array([0, 0])
    private = floats([9, 9], [2, 6], [4, -6]), np.array([0, 1, 1])
    of_public, of_private = plain.erpa_client_prototypes(backbone, feature, public, private, num_classes=3)
    assert {label: row.tolist() for label, row in of_public.items()} == {0: [2, 0]}
    assert {label: (row.tolist(), count) for label, (row, count) in of_private.items()} == {1: ([3, 3], 2)}


# A whole round


def one_weight_federation(keep: float, rounds: int = 1) -> Any:
    """One client, its sample x = 2 and a public x = 1, both of class 0; no backbone; embedding = relu(x)."""
    return plain.run(
        [(floats([2]), np.array([0]))],
        (floats([1]), np.array([0])),
        2,
        {"backbone": [], "feature": (floats([1]), floats(0)), "head": (floats([0], [0]), floats(0, 0))},
        rounds,
        keep=keep,
        align=0.5,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.0,
        batch_size=1,
        epochs=1,
        participants=lambda round_number: [0],
        batch_order=lambda client, round_number: np.array([[0]]),
    )


def test_one_step_by_hand() -> None:
    # z = 2, anchor = 1, logits (0, 0), softmax (1/2, 1/2).
    # Head: weight gradient (p - y) z = (-1, 1), bias gradient (-1/2, 1/2).
    # dL/dz = 0 from the head (its weights are 0) + align/m * 2 (z - anchor) = 1; times x = 2 for the weight.
    (state,) = one_weight_federation(keep=1.0)
    np.testing.assert_allclose(state.adapter, [0.8, -0.1, 0.1, -0.1, 0.05, -0.05], rtol=1e-6)
    assert state.anchors[0].tolist() == [1]
    assert state.defined.tolist() == [True, False]
    assert np.isnan(state.anchors[1]).all()
    np.testing.assert_allclose(state.losses[0], [[np.log(2), 1]], rtol=1e-6)


def test_one_step_by_hand_with_one_coordinate_sent() -> None:
    (state,) = one_weight_federation(keep=0.2)  # floor(0.2 * 6) = 1: the feature weight moved most
    assert state.masks[0].tolist() == [True, False, False, False, False, False]
    np.testing.assert_allclose(state.adapter, [0.8, 0, 0, 0, 0, 0], rtol=1e-6)


def test_a_second_round_starts_from_the_broadcast_with_fresh_momentum() -> None:
    # Only the feature weight 0.8 came back: z = 1.6, anchor = 0.8, dL/dz = 0.8, weight gradient 1.6.
    _, state = one_weight_federation(keep=0.2, rounds=2)
    np.testing.assert_allclose(state.adapter, [0.64, 0, 0, 0, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(state.anchors[0], [0.8], rtol=1e-6)


Vector = NDArray[np.float64]
WIDTHS = [(3, 4), (4, 5), (5, 3)]  # (inputs, outputs) of the backbone's layer, the feature layer, the head


def unpack(vector: Vector) -> list[Vector]:
    parts, start = [], 0
    for inputs, outputs in WIDTHS:
        parts.append(vector[start : start + inputs * outputs].reshape(outputs, inputs))
        start += inputs * outputs
        parts.append(vector[start : start + outputs])
        start += outputs
    return parts


def numpy_embedding(vector: Vector, images: NDArray[Any]) -> Vector:
    first, first_bias, second, second_bias, _, _ = unpack(vector)
    hidden = np.maximum(images @ first.T + first_bias, 0)
    embedding: Vector = np.maximum(hidden @ second.T + second_bias, 0)
    return embedding


def slope(function: Callable[[Vector], float], point: Vector) -> Vector:
    step = 1e-6
    moves = step * np.eye(len(point))
    return np.array([(function(point + move) - function(point - move)) / (2 * step) for move in moves])


SIZE = sum(inputs * outputs + outputs for inputs, outputs in WIDTHS)  # 16 backbone + 43 adapter


def network(vector: Vector) -> dict[str, Any]:
    weights = [part.astype(np.float32) for part in unpack(vector)]
    return {"backbone": [tuple(weights[:2])], "feature": tuple(weights[2:4]), "head": tuple(weights[4:])}


def test_local_training_agrees_with_finite_differences() -> None:
    # Three samples in batches of two (the last has one), two epochs, momentum, weight decay, and a public
    # set with class 0 only, so that classes 1 and 2 are aligned with the client's own prototypes.
    random = np.random.default_rng(5)
    start = (random.normal(size=SIZE) * 0.6).astype(np.float32).astype(np.float64)
    images, labels = random.normal(size=(3, 3)).astype(np.float32), np.array([0, 1, 2])
    public = random.normal(size=(2, 3)).astype(np.float32), np.array([0, 0])
    order = np.array([[2, 0, 1], [1, 2, 0]])
    align, learning_rate, momentum, weight_decay = 2.0, 0.1, 0.9, 0.01

    anchors = np.stack([numpy_embedding(start, public[0]).mean(0), *numpy_embedding(start, images[1:])])

    def loss(vector: Vector, batch: NDArray[np.int64]) -> float:
        *_, head, head_bias = unpack(vector)
        embedding = numpy_embedding(vector, images[batch])
        logits = embedding @ head.T + head_bias
        log_likelihood = logits[range(len(batch)), labels[batch]] - np.log(np.exp(logits).sum(1))
        distances = ((embedding - anchors[labels[batch]]) ** 2).sum(1)
        return float((-log_likelihood + align / embedding.shape[1] * distances).mean())

    expected, velocity = start.copy(), np.zeros_like(start)
    for batch in (order[0, :2], order[0, 2:], order[1, :2], order[1, 2:]):
        gradient = slope(lambda vector, batch=batch: loss(vector, batch), expected)  # type: ignore[misc]
        velocity = momentum * velocity + gradient + weight_decay * expected
        expected -= learning_rate * velocity

    (state,) = plain.run(
        [(images, labels)],
        public,
        3,
        network(start),
        1,
        keep=1.0,
        align=align,
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        batch_size=2,
        epochs=2,
        participants=lambda round_number: [0],
        batch_order=lambda client, round_number: order,
    )
    np.testing.assert_allclose(state.anchors, anchors, atol=1e-6)
    trained = np.concatenate([*(part.ravel() for part in state.backbones[0]), state.adapter])
    np.testing.assert_allclose(trained, expected, atol=2e-6)
    assert np.abs(trained - start).max() > 0.1  # far more than the tolerance
    assert (np.abs(trained - start) > 1e-4).mean() > 0.8  # and nearly everywhere: no layer is left out


def three_clients(cohorts: list[list[int]], keep: float, align: float) -> tuple[Any, Any, Any]:
    """Clients with 4, 6 and 5 samples and no public set: their data, the common start, the rounds."""
    random = np.random.default_rng(8)
    clients = [(random.normal(size=(n, 3)).astype(np.float32), random.integers(3, size=n)) for n in (4, 6, 5)]
    start = (random.normal(size=SIZE) * 0.6).astype(np.float32)
    history = plain.run(
        clients,
        (np.zeros((0, 3), dtype=np.float32), np.zeros(0, dtype=np.int64)),
        3,
        network(start.astype(np.float64)),
        len(cohorts),
        keep=keep,
        align=align,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.0,
        batch_size=4,
        epochs=1,
        participants=lambda round_number: cohorts[round_number - 1],
        batch_order=lambda client, round_number: np.arange(len(clients[client][1]))[None],
    )
    return clients, start, history


def test_a_dense_round_is_the_sample_weighted_mean_of_the_clients_alone() -> None:
    alone = {client: three_clients([[client]], keep=1.0, align=0.0)[2][0].adapter for client in (0, 1)}
    together = three_clients([[1, 0]], keep=1.0, align=0.0)[2][0].adapter  # client 2 has no weight
    np.testing.assert_allclose(together, 0.4 * alone[0] + 0.6 * alone[1], rtol=1e-6)


def test_only_participants_change_and_only_what_they_send() -> None:
    cohorts: list[list[int]] = [[0, 2], [1], []]
    clients, start, history = three_clients(cohorts, keep=0.25, align=1.0)
    adapter, backbones = start[16:], {client: [start[:12], start[12:16]] for client in range(3)}
    for cohort, state in zip(cohorts, history, strict=True):
        assert list(state.masks) == cohort
        assert all(mask.sum() == 10 for mask in state.masks.values())  # floor(0.25 * 43)
        sent = np.any([*state.masks.values(), np.zeros(43, dtype=bool)], axis=0)
        assert np.array_equal(state.adapter != adapter, sent)
        for client in range(3):
            before, after = (np.concatenate([a.ravel() for a in b[client]]) for b in (backbones, state.backbones))
            assert np.array_equal(before, after) == (client not in cohort)
        held = {int(label) for client in cohort for label in clients[client][1]}
        assert set(np.flatnonzero(state.defined)) == held  # no public set, so an anchor for what they hold
        adapter, backbones = state.adapter, state.backbones


def whole(state: Any, client: int) -> Vector:
    """A client's model after a round, its own backbone and the shared adapter, as one vector."""
    parts = [*(part.ravel() for part in state.backbones[client]), state.adapter]
    return np.concatenate(parts).astype(np.float64)


def test_a_client_continues_from_its_own_backbone() -> None:
    # A single client's state is its backbone and the adapter: two rounds are one round, twice.
    data = floats([1, 2, 0], [0, -1, 3]), np.array([0, 2])
    start = np.random.default_rng(3).normal(size=SIZE) * 0.6

    def rounds(number: int, begin: Vector) -> Any:
        return plain.run(
            [data],
            data,
            3,
            network(begin),
            number,
            keep=0.3,
            align=1.0,
            learning_rate=0.1,
            momentum=0.9,
            weight_decay=0.0,
            batch_size=1,
            epochs=1,
            participants=lambda round_number: [0],
            batch_order=lambda client, round_number: np.array([[0, 1]]),
        )

    first, second = rounds(2, start)
    (again,) = rounds(1, whole(first, 0))
    assert np.array_equal(whole(second, 0), whole(again, 0))


def test_anchors_come_from_each_clients_own_backbone_before_training() -> None:
    # Without public data an anchor is the mean over all samples of the class, each embedded where it lives.
    clients, _, (before, state) = three_clients([[0, 1], [0, 1, 2]], keep=0.5, align=1.0)
    embeddings = np.concatenate([numpy_embedding(whole(before, k), clients[k][0]) for k in range(3)])
    labels = np.concatenate([client[1] for client in clients])
    expected = [embeddings[labels == label].mean(axis=0) for label in range(3)]
    np.testing.assert_allclose(state.anchors, expected, atol=1e-6)
