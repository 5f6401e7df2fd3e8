"""The common parts of prototype methods: averages, alignment, contrasts, the server's training; six methods run."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Train
from refprotofl.export.trained_model import load_trained
from refprotofl.federation import Callback, run, simulation
from refprotofl.federation.resolution import check_compressor
from refprotofl.methods import Refused
from refprotofl.methods.base.schema import MessageSchema, kinds, read_answer
from refprotofl.methods.base.training import Diverged, embed, minimise, plain_sgd
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common.prototypes import ClassMeans, mean_fields, read_means, write_means
from refprotofl.wire import Ledger, Message, WireError, decode, encode

pytestmark = pytest.mark.slow

METHODS = ("fedproto", "fedgh", "fedtgp", "fedproc", "fedpcl", "fedprotokd")

FROZEN = """
from torch import nn

def frozen(shape):
    layers = nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()
    return nn.Sequential(*layers).requires_grad_(False)
"""


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A frozen backbone of the user's, with batch statistics."""
    (tmp_path / "frozen_backbone.py").write_text(FROZEN)
    monkeypatch.syspath_prepend(tmp_path)
    return "frozen_backbone:frozen"


def means(rows: list[list[float]], counts: list[int]) -> ClassMeans:
    return ClassMeans(torch.tensor(rows), torch.tensor(counts))


# Messages


def server_reads(scope: Any, message: Message, *, counted: bool) -> ClassMeans:
    """By the declared fields, then between them; of three classes, two wide."""
    declared = {"train": MessageSchema(up=mean_fields(scope({"method": "fedproto"}), counted=counted))}
    return read_means(read_answer(declared, "train", message), 3, 2, counted=counted)


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), st.booleans(), st.booleans())
def test_means_come_back_as_they_were(scope: Any, counts: list[int], named: bool, counted: bool) -> None:
    held = torch.tensor(counts)
    sent = ClassMeans(torch.where(held.unsqueeze(1) > 0, torch.arange(6.0).view(3, 2) + 1, 0.0), held)
    message = decode(encode(write_means(sent, named=named, counted=counted)))
    back = server_reads(scope, message, counted=counted)
    assert back.means.equal(sent.means)
    assert back.counts.equal(held if counted else held.clamp(max=1))
    assert ("classes" in message) == (named or 0 in counts)


GOOD: Message = {"prototypes": torch.ones(2, 2), "classes": torch.tensor([0, 2]), "counts": torch.tensor([3, 4])}
TOGETHER = "prototypes, classes and counts do not belong together, or a class comes twice"
ROWS = "prototypes is not a float32 matrix of any x 2"


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        ({"prototypes": torch.ones(3, 2)}, TOGETHER),
        ({"prototypes": torch.ones(2, 3)}, ROWS),
        ({"prototypes": torch.ones(2, 2).double()}, ROWS),
        (
            {"prototypes": torch.zeros(0, 2), "classes": torch.zeros(0).long(), "counts": torch.zeros(0).long()},
            "there is no prototype",
        ),
        ({"classes": torch.tensor([0, 0])}, TOGETHER),
        ({"classes": torch.tensor([0, 3])}, "classes has a number above 2"),
        ({"classes": torch.tensor([-1, 2])}, "classes has a number below 0"),
        ({"counts": torch.tensor([3, 0])}, "counts has a number below 1"),
        ({"counts": torch.tensor([3])}, TOGETHER),
        ({"counts": torch.tensor([3.0, 4.0])}, "counts is not a whole vector"),
    ],
)
def test_malformed_means_are_refused(scope: Any, spoilt: Message, sentence: str) -> None:
    assert server_reads(scope, GOOD, counted=True).counts.tolist() == [3, 0, 4]
    with pytest.raises(Refused, match=sentence):
        server_reads(scope, decode(encode(GOOD | spoilt)), counted=True)


def test_means_that_are_no_numbers_are_not_even_sent_or_decoded() -> None:
    """The declaration need not look for them: nothing that comes over the wire is NaN or infinite."""
    rows = torch.tensor([[1.0, 2.0], [1.0, 1.0]])
    bytes_of = encode(GOOD | {"prototypes": rows})
    assert bytes_of.count(np.float32(2.0).tobytes()) == 1
    for bad in (math.nan, math.inf):
        with pytest.raises(WireError, match="1 of 4 values are NaN or infinite"):
            encode(GOOD | {"prototypes": torch.where(rows == 2, bad, rows)})
        with pytest.raises(WireError, match="NaN or infinite"):
            decode(bytes_of.replace(np.float32(2.0).tobytes(), np.float32(bad).tobytes()))


def test_counts_that_do_not_weigh_are_not_asked_for(scope: Any) -> None:
    with pytest.raises(Refused, match="the field 'counts' was not asked for"):
        server_reads(scope, GOOD, counted=False)
    with pytest.raises(Refused, match="the field 'counts' is missing"):
        server_reads(scope, {name: value for name, value in GOOD.items() if name != "counts"}, counted=True)


def test_with_ten_classes_of_128_fedproto_sends_1280_values_and_fedgh_1290(scope: Any) -> None:
    whole = ClassMeans(torch.ones(10, 128), torch.ones(10, dtype=torch.int64))
    declared = kinds({"train": MessageSchema(up=mean_fields(scope({"method": "fedproto"}, classes=10, width=128)))})
    for named, others in ((False, 0), (True, 10)):
        ledger, message = Ledger(), write_means(whole, named=named)
        ledger.record(round=1, phase="train", client=0, direction="up", message=message, size=1, kinds=declared)
        up = ledger.totals()["uplink"]
        assert (up["parameters"], up["prototype_values"], up["other_values"]) == (0, 1280, others)


# Averages


def test_two_clients_average_to_2_uniformly_and_to_3_by_count() -> None:
    uploads = [means([[0.0], [0.0]], [1, 0]), means([[4.0], [0.0]], [3, 0])]
    anchors, defined = torch.tensor([[9.0], [7.0]]), torch.tensor([True, True])
    assert learning.average(Experiment(), uploads, "uniform", anchors, defined)[0].tolist() == [[2.0], [7.0]]
    assert learning.average(Experiment(), uploads, "count", anchors, defined)[0].tolist() == [[3.0], [7.0]]


def test_a_class_that_no_client_holds_keeps_its_prototype_only_if_retained() -> None:
    uploads, anchors = [means([[4.0], [0.0]], [3, 0])], torch.tensor([[9.0], [7.0]])
    for retain in (True, False):
        known = learning.average(Experiment(), uploads, "uniform", anchors, torch.tensor([True, True]), retain)[1]
        assert known.tolist() == [True, retain]
    never = learning.average(Experiment(), uploads, "uniform", anchors, torch.tensor([True, False]))[1]
    assert never.tolist() == [True, False]


def test_pairs_are_every_held_prototype_by_client_and_class() -> None:
    uploads = [means([[1.0], [0.0], [2.0]], [5, 0, 6]), means([[0.0], [3.0], [0.0]], [0, 7, 0])]
    prototypes, labels, counts = learning.pairs(uploads)
    assert prototypes.tolist() == [[1.0], [2.0], [3.0]]
    assert labels.tolist() == [0, 2, 1]
    assert counts.tolist() == [5, 6, 7]


# Losses


def test_the_pull_averages_over_batch_and_embedding_or_over_the_batch_alone() -> None:
    anchors, defined = torch.tensor([[1.0, 1.0], [math.nan, 0.0]]), torch.tensor([True, False])
    batch, labels = torch.tensor([[3.0, 1.0], [5.0, 5.0]]), torch.tensor([0, 1])  # squared distance 4; unknown class
    mse = learning.Alignment(2.0, "w").penalty(anchors, defined)
    squared = learning.Alignment(2.0, "w", "squared").penalty(anchors, defined)
    assert mse is not None
    assert squared is not None
    assert mse(batch, labels).item() == 2 * 4 / (2 * 2)
    assert squared(batch, labels).item() == 2 * 4 / 2
    assert learning.Alignment(0.0, "w").penalty(anchors, defined) is None
    assert learning.Alignment(1.0, "w").penalty(anchors, torch.tensor([False, False])) is None


def test_the_contrast_is_the_softmax_over_cosines_to_known_anchors() -> None:
    anchors = torch.tensor([[5.0, 0.0], [0.0, 2.0], [math.nan, 1.0]])
    defined = torch.tensor([True, True, False])
    batch = torch.tensor([[3.0, 0.0], [1.0, 1.0]], requires_grad=True)
    loss = learning.contrastive_loss(batch, torch.tensor([0, 2]), anchors, defined, temperature=0.5)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2)) / 2)  # the second sample's class is unknown: 0
    loss.backward()
    assert torch.isfinite(batch.grad).all()  # type: ignore[arg-type]
    assert batch.grad[1].eq(0).all()  # type: ignore[index]


@given(st.lists(st.floats(-1, 1), min_size=12, max_size=12), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_among_anchors_of_length_one_the_nearest_has_the_largest_cosine(rows: list[float], point: list[float]) -> None:
    anchors = nn.functional.normalize(torch.tensor(rows, dtype=torch.float64).view(4, 3) + 1e-3)
    z = torch.tensor([point], dtype=torch.float64)
    nearest, cosine = torch.cdist(z, anchors).argmin(), (z @ anchors.T).squeeze(0)
    assert cosine[nearest].item() == pytest.approx(cosine.max().item(), abs=1e-6)


def test_running_means_are_of_the_last_epoch_alone() -> None:
    seen = learning.Running(None, 3, Train(local_epochs=2, batch_size=2))  # two batches an epoch
    for value in (1.0, 2.0, 3.0, 5.0):
        assert seen(torch.full((1, 1), value), torch.tensor([0])).item() == 0
    assert seen.means(2).means.tolist() == [[4.0], [0.0]]
    assert seen.means(2).counts.tolist() == [2, 0]


# The server's training


def test_the_server_steps_down_without_momentum() -> None:
    x = nn.Parameter(torch.zeros(1))
    settings = plain_sgd(lr=0.25, epochs=2, batch_size=8)
    minimise([x], lambda rows: (x - 1).square().sum(), 3, settings, np.random.default_rng(0))
    assert x.item() == 0.75  # 0, 0.5, 0.75


def test_a_server_whose_training_explodes_says_so() -> None:
    x = nn.Parameter(torch.ones(1))
    with pytest.raises(Diverged, match="a smaller server-lr than 1000"):
        minimise([x], lambda rows: x.pow(4).sum(), 3, plain_sgd(1000.0, 20, 8), np.random.default_rng(0))


# Every method, run


def options(method: str, frozen: str) -> dict[str, Any]:
    return {"method": method, **({"model": {"name": frozen}} if method == "fedpcl" else {})}


@pytest.mark.parametrize("method", METHODS)
def test_three_rounds_run_and_are_the_same_again_and_after_an_interruption(
    simulate: Any, tmp_path: Path, frozen: str, method: str
) -> None:
    whole = simulate(options(method, frozen))
    assert whole.events("client-failed") == []
    assert whole.finished.summary["accuracy"]["personal"] is not None

    class Impatient(Callback):
        def on_round(self, event: Any, accuracy: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(whole.experiment, out=tmp_path / "run", callback=Impatient())
    again = run(whole.experiment, out=tmp_path / "run", resume=True)
    assert again.summary["state_digest"] == whole.finished.summary["state_digest"]
    assert again.summary["accuracy"] == whole.finished.summary["accuracy"]


@pytest.mark.parametrize("method", METHODS)
def test_no_private_weight_is_in_any_message(simulated: Any, frozen: str, method: str) -> None:
    done = simulated({**options(method, frozen), "share": "adapter"})
    shared = {"fedgh": 90, "fedproc": 1122}.get(method, 0)  # values of the head; of feature layer and head
    for one in done.tap.crossings:
        sizes = {name: value.numel() for name, value in one.message.items() if isinstance(value, torch.Tensor)}
        assert sizes.pop("shared", shared) == shared
        assert not {"backbone", "feature", "head"} & {name.partition(".")[0] for name in one.message}
    assert done.communication["uplink"]["parameters"] == (12 * shared if method == "fedproc" else 0)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "fedproc"])
def test_a_compressor_of_weights_is_refused_where_no_weights_go_up(tiny: Any, method: str) -> None:
    with pytest.raises(InputError, match=f"method = '{method}' sends no weights up"):
        check_compressor(tiny({"method": method, "compress": {"name": "top-k"}}))


@pytest.mark.parametrize("method", ["fedproto", "fedgh", "fedtgp"])
def test_what_is_uploaded_are_the_class_means_of_the_model_just_trained(simulated: Any, method: str) -> None:
    done = simulated({"method": method})
    data = simulation.load_federation(done.experiment, None).data
    images, labels = torch.from_numpy(data.dataset.train_inputs), torch.from_numpy(data.dataset.train_labels)
    for client, indices in enumerate(data.client_indices):
        (last,) = (one.message for one in done.tap.select("up", "train") if (one.client, one.round) == (client, 3))
        held = read_means(last, 10, 8)
        embeddings, own = embed(load_trained(done.folder, client).model, images[indices]), labels[indices]
        for number in own.unique().tolist():
            assert held.means[number].allclose(embeddings[own == number].mean(dim=0), atol=1e-5)
        assert held.counts.nonzero().flatten().tolist() == own.unique().tolist()
