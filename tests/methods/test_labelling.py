"""Weak labels and queries: numbers by hand, and the budget that they promise."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.methods import Refused
from refprotofl.methods.base.schema import MessageSchemas, read_answer
from refprotofl.methods.builtin.fast import Options, labelling
from refprotofl.methods.builtin.fast.fast import FASTServer
from refprotofl.methods.builtin.fast.labelling import (
    UNCERTAINTIES,
    choose_queries,
    class_scores,
    draw_seeds,
    mixed_labels,
    own_quotas,
    read_counts,
    read_seeds,
    seed_quotas,
    write_seeds,
)
from refprotofl.wire import WireError, encode


@pytest.mark.parametrize(
    ("name", "halves", "tilted"),
    [
        ("norm", math.sqrt(0.5), math.sqrt(0.04 + 0.04)),
        ("entropy", math.log(2), -0.8 * math.log(0.8) - 0.2 * math.log(0.2)),
        ("confidence", 0.5, 0.2),
        ("margin", 1.0, 0.4),
    ],
)
def test_uncertainty_of_a_certain_a_torn_and_a_tilted_vote(name, halves, tilted):
    scores = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.2, 0.0, 0.8, 0.0]])
    assert UNCERTAINTIES[name](scores).tolist() == pytest.approx([0.0, halves, tilted], abs=1e-6)


def test_class_aware_queries_take_an_equal_share_of_each_weak_class_first():
    tops = [0.9, 0.5, 0.6, 0.95, 0.7, 1.0]  # of class 0 four times, then of class 1 twice
    scores = torch.tensor([[top, 1 - top, 0] for top in tops[:4]] + [[0, top, 1 - top] for top in tops[4:]])
    assert choose_queries(scores, 3, "confidence", class_aware=False).tolist() == [1, 2, 4]
    assert choose_queries(scores, 6, "confidence", class_aware=False).tolist() == list(range(6))
    assert choose_queries(scores[[1, 2, 3, 0, 5]], 3, "confidence", class_aware=True).tolist() == [0, 1, 4]
    assert choose_queries(torch.full((5, 4), 0.25), 2, "norm", class_aware=False).tolist() == [0, 1]  # ties


@pytest.mark.parametrize("class_aware", [True, False])
@given(votes=st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), max_size=30), data=st.data())
def test_exactly_the_asked_number_is_queried(class_aware, votes, data):
    scores = torch.tensor(votes, dtype=torch.float32).view(-1, 3) / 5
    number = data.draw(st.integers(0, len(votes)))
    chosen = choose_queries(scores, number, "margin", class_aware)
    assert len(chosen.unique()) == len(chosen) == number


def test_scores_are_the_votes_of_the_nearest_seeds():
    generator = torch.Generator().manual_seed(0)
    seeds, points = torch.randn(40, 6, generator=generator), torch.randn(15, 6, generator=generator)
    labels = torch.arange(40) % 4
    found = class_scores(points, seeds, labels, 7, 5)
    for point, scores in zip(points, found, strict=True):
        nearest = sorted(range(40), key=lambda row: float((point - seeds[row]).norm()))[:7]
        expected = [sum(int(labels[row]) == number for row in nearest) / 7 for number in range(5)]
        assert scores.tolist() == pytest.approx(expected)
    fewer = class_scores(points, seeds[:9], labels[:9], 10, 5)  # nine seeds of four classes: two neighbours
    assert set(fewer.unique().tolist()) <= {0.0, 0.5, 1.0}


@given(
    counts=st.integers(1, 6).flatmap(
        lambda clients: st.lists(
            st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=clients, max_size=clients
        )
    ),
    held=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    share=st.sampled_from([0.01, 0.2, 0.9]),
)
def test_quotas_are_balanced_large_enough_and_of_samples_that_are_there(counts, held, share):
    counts, held = np.array(counts), np.array(held)
    quotas = seed_quotas(counts, share, held, np.random.default_rng(0))
    totals, drawn = counts.sum(axis=0), quotas.sum(axis=0)
    assert (quotas >= 0).all()
    assert (quotas <= counts).all()
    assert (drawn + held >= np.minimum(5, totals + held)).all()
    assert drawn.sum() >= min(round(share * totals.sum()), totals.sum())
    if share == 0.9:
        unsaturated = drawn[drawn < totals]
        assert len(unsaturated) == 0 or unsaturated.max() - unsaturated.min() <= 1


def test_the_labelled_share_is_the_papers():
    true = torch.arange(10).repeat(1000)
    seeds = draw_seeds(true, own_quotas(true, 0.01, 10, np.random.default_rng(0)), np.random.default_rng(1))
    assert true[seeds].bincount().tolist() == [10] * 10
    embeddings = torch.nn.functional.one_hot(true, 10).float() + 0.3 * torch.randn(
        10_000, 10, generator=torch.Generator().manual_seed(0)
    )
    labels, counts = mixed_labels(true, seeds, embeddings, embeddings[seeds], true[seeds], Options(), 10)
    assert counts["seeds"] + counts["queried"] == 100 + 396  # 0.01 + 0.04 * 0.99 = 0.0496
    assert labels[seeds].equal(true[seeds])
    assert counts["weak"] == 9900
    assert 7000 < counts["weak_right"] < counts["right"] - 100 < 9900
    assert counts["right"] == int((labels == true).sum())
    facts = labelling.facts(torch.tensor([list(counts.values())]), 0.01)
    assert facts["labelled_share"] == pytest.approx(0.0496)
    assert facts["weak_label_accuracy"] == counts["weak_right"] / 9900
    assert "note" not in facts


def test_a_raised_budget_is_said():
    facts = labelling.facts(torch.tensor([[50, 10, 150, 100, 165]]), 0.01)
    assert facts["note"] == "seed labels were raised from 2 to 50: at least 5 of each class"
    assert facts["oracle_labels"] == 60


def declared(scope) -> MessageSchemas:
    """Return the schemas of FAST's server with pooled neighbours and three classes."""
    return FASTServer.message_schemas(scope({"method": "fast"}))


def test_seeds_that_were_not_asked_for_are_refused(scope):
    quotas, rows, labels = torch.tensor([2, 0, 1]), torch.zeros(3, 4), torch.tensor([0, 2, 0])

    def server_reads(message):
        return read_seeds(read_answer(declared(scope), "seed", message), quotas, 4)

    read = server_reads(write_seeds(rows, labels, 3))
    assert read[0].equal(rows)
    assert read[1].equal(labels)
    for bad, sentence in (
        (write_seeds(rows, torch.tensor([0, 1, 0]), 3), "the labels are not of the classes that were asked for"),
        (write_seeds(rows, torch.tensor([0, 3, 0]), 3), "labels has a number above 2"),
        (write_seeds(rows[:2], labels[:2], 3), "the labels are not of the classes that were asked for"),
        (write_seeds(rows[:2], labels, 3), "the labels are not of the classes that were asked for"),
        (write_seeds(rows[:, :3], labels, 3), "embeddings are 3 wide, not 4"),
        (write_seeds(rows.double(), labels, 3), "embeddings is not a float32 matrix of any x any"),
        (write_seeds(rows, labels, 3) | {"labels": labels.float()}, "labels is not a whole vector"),
        (write_seeds(rows, labels, 3) | {"name": "x"}, "the field 'name' was not asked for"),
    ):
        with pytest.raises(Refused, match=sentence):
            server_reads(bad)
    with pytest.raises(WireError, match="NaN or infinite"):  # nothing of the kind ever reaches a server
        encode(write_seeds(rows / 0, labels, 3))
    with pytest.raises(KeyError, match="embeddings"):  # which the server takes as a refusal
        server_reads({})


def test_counts_of_nothing_and_of_other_classes_are_refused(scope):
    def server_reads(counts):
        return read_counts(read_answer(declared(scope), "join", {"samples": 4, "counts": counts}))

    assert server_reads(torch.tensor([1, 0, 3]).int()).tolist() == [1, 0, 3]
    for counts, sentence in (
        (torch.tensor([1, -1, 3]).int(), "counts has a number below 0"),
        (torch.tensor([0, 0, 0]).int(), "the counts do not add up to the samples"),
        (torch.tensor([1, 1, 3]).int(), "the counts do not add up to the samples"),
        (torch.tensor([1, 2]).int(), "counts is not an int32 vector of 3 values"),
        (torch.tensor([1, 2, 3]), "counts is not an int32 vector of 3 values"),
    ):
        with pytest.raises(Refused, match=sentence):
            server_reads(counts)
