import time
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.core.errors import InputError
from refprotofl.core.streams import stream
from refprotofl.data.partitions import (
    MOST_REDRAWS,
    dirichlet,
    draw_shards,
    partition,
    repair,
)

KINDS: tuple[Literal["dirichlet", "iid", "shards", "quantity", "feature-shift"], ...] = (
    "dirichlet",
    "iid",
    "shards",
    "quantity",
    "feature-shift",
)


@st.composite
def satisfiable(draw):
    """Labels, clients and a min-size that there are samples enough for, and any alpha above 0."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=300)), np.int64)
    clients = draw(st.integers(1, len(labels)))
    min_size = draw(st.integers(0, len(labels) // clients))
    alpha = draw(st.floats(min_value=0, exclude_min=True, max_value=1e300))
    return draw(st.sampled_from(KINDS)), labels, clients, alpha, min_size, draw(st.integers(0, 3))


@settings(max_examples=300)
@given(satisfiable())
def test_every_sample_has_one_owner_and_every_client_enough(case):
    kind, labels, clients, _, min_size, _ = case
    shares, notes = partition(*case)
    assert len(shares) == clients
    assert sorted(np.concatenate(shares)) == list(range(len(labels)))
    assert min(len(share) for share in shares) >= max(1, min_size)
    assert all((np.diff(share) > 0).all() for share in shares)
    assert notes.kind == kind
    assert 0 <= notes.redraws <= MOST_REDRAWS
    assert 0 <= notes.moved < len(labels)
    again, _ = partition(*case)
    assert all(np.array_equal(one, other) for one, other in zip(shares, again, strict=True))


@settings(max_examples=100)
@given(st.floats(min_value=0, exclude_min=True, max_value=1e300), st.integers(1, 50), st.integers(0, 9))
def test_dirichlet_draws_are_proportions_for_any_alpha(alpha, clients, seed):
    rows = dirichlet(alpha, 5, clients, stream(seed, "test"))
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    assert rows.sum(axis=1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_dirichlet_draws_have_its_variance(alpha):
    clients, rows = 4, 40_000
    drawn = dirichlet(alpha, rows, clients, stream(0, "test"))
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert drawn.mean(axis=0) == pytest.approx(np.full(clients, 1 / clients), abs=0.01)
    assert drawn.var(axis=0) == pytest.approx(np.full(clients, variance), rel=0.03)


def test_a_tiny_alpha_gives_each_class_to_one_client():
    labels = np.repeat(np.arange(10), 100)
    shares, notes = partition("dirichlet", labels, 3, 1e-6, 0, 0)
    owners = np.empty(len(labels), int)
    for client, share in enumerate(shares):
        owners[share] = client
    assert notes.moved == 0
    assert all(len(set(owners[labels == number])) == 1 for number in range(10))


def test_a_large_alpha_is_nearly_even():
    labels = np.repeat(np.arange(10), 1000)
    shares, notes = partition("dirichlet", labels, 10, 1e6, 64, 0)
    counts = np.stack([np.bincount(labels[share], minlength=10) for share in shares])
    assert notes.redraws == 0
    assert abs(counts - 100).max() <= 3


def test_repair_takes_from_the_largest_and_is_recorded():
    owners = np.array([0] * 10 + [1] * 7 + [2] * 2 + [3])
    repaired, moved = repair(owners, 4, 4, stream(0, "test"))
    assert moved == 5  # two for client 2, three for client 3
    assert np.bincount(repaired).tolist() == [6, 6, 4, 4]  # 10 and 7 shaved down to 6 and 6
    assert (repaired[17:] == owners[17:]).all()


def test_what_cannot_be_redrawn_is_repaired():
    shares, notes = partition("dirichlet", np.repeat(np.arange(2), 50), 10, 0.01, 10, 0)
    assert [len(share) for share in shares] == [10] * 10
    assert notes.redraws == MOST_REDRAWS
    assert notes.moved > 0


def test_iid_sizes_differ_by_one_at_most():
    shares, notes = partition("iid", np.zeros(103, int), 10, 0.5, 10, 0)
    assert sorted(len(share) for share in shares) == [10] * 7 + [11] * 3
    assert (notes.redraws, notes.moved) == (0, 0)


def test_a_client_holds_two_shards():
    labels = stream(0, "labels").permutation(np.repeat(np.arange(10), 100))
    owners = draw_shards(labels, 10, stream(0, "test"))
    assert np.bincount(owners).tolist() == [100] * 10
    # Shards of 50 never straddle these classes, so a client has two shards of one class or of two.
    for client in range(10):
        counts = np.bincount(labels[owners == client], minlength=10)
        assert sorted(counts[counts > 0]) in ([100], [50, 50])


def test_quantity_skew_has_dirichlet_sizes_and_even_classes():
    labels = np.repeat(np.arange(2), 20_000)
    expected = dirichlet(0.5, 1, 5, stream(0, "partition"))[0]
    shares, notes = partition("quantity", labels, 5, 0.5, 1, 0)
    assert notes.redraws == 0
    assert [len(share) / len(labels) for share in shares] == pytest.approx(list(expected), abs=1e-4)
    assert all(labels[share].mean() == pytest.approx(0.5, abs=0.05) for share in shares if len(share) > 1000)


@given(st.integers(2, 8), st.integers(1, 8), st.integers(1, 12), st.integers(0, 5))
def test_every_client_has_its_number_of_classes(classes, each, clients, seed):
    labels = stream(seed, "labels").permutation(np.repeat(np.arange(classes), 60))
    if each > classes or each * clients < classes:
        with pytest.raises(InputError, match=f"classes-per-client = {each}"):
            partition("classes-per-client", labels, clients, 0.5, 1, seed, each)
        return
    shares, _ = partition("classes-per-client", labels, clients, 0.5, 1, seed, each)
    counts = np.stack([np.bincount(labels[share], minlength=classes) for share in shares])
    assert ((counts > 0).sum(axis=1) == each).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    assert (counts.sum(axis=0) == 60).all()
    for number in range(classes):  # a class is divided equally among the clients that have it
        having = counts[:, number][counts[:, number] > 0]
        assert having.max() - having.min() <= 1


def test_clients_too_small_for_their_classes_are_refused_rather_than_repaired():
    with pytest.raises(InputError, match=r"classes-per-client = 1: client \d has \d samples .* min-size = 20"):
        partition("classes-per-client", np.array([0] * 60 + [1] * 15), 3, 0.5, 20, 0, 1)


def test_the_seed_matters():
    labels = np.repeat(np.arange(5), 40)
    for kind in KINDS:
        one, other = (partition(kind, labels, 4, 0.5, 1, seed)[0] for seed in (0, 1))
        assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_more_than_there_is():
    with pytest.raises(InputError, match=r"clients = 10 with min-size = 64 need 640 .* only 500 .* at most 7 clients"):
        partition("dirichlet", np.zeros(500, int), 10, 0.5, 64, 0)
    with pytest.raises(InputError, match="clients = 3"):
        partition("iid", np.zeros(2, int), 3, 0.5, 0, 0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_no_such_dirichlet(alpha):
    with pytest.raises(InputError, match="alpha"):
        partition("dirichlet", np.zeros(10, int), 2, alpha, 1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_clients_are_fast(kind):
    labels = np.arange(60_000) % 10
    start = time.process_time()  # of this process alone, however busy the machine is
    shares, _ = partition(kind, labels, 10_000, 0.5, 2, 0)
    assert len(shares) == 10_000
    assert time.process_time() - start < 10
