"""Each metric equals scikit-learn's, from predictions and, where that is enough, from the confusion matrix alone."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss, roc_auc_score

from refprotofl.evaluation import scoring
from refprotofl.evaluation.metrics import METRICS, ScoredSamples, compute, compute_all, sent_by_clients
from refprotofl.evaluation.scoring import client_metrics, count_correct, mean_metrics, personal_scores


@st.composite
def cases(draw: st.DrawFn, num_classes: int | None = None) -> ScoredSamples:
    """Logits on a coarse grid, so that ties occur, and labels of which some classes may be absent."""
    classes = num_classes or draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    samples = draw(st.integers(1, 40))
    present = rng.choice(classes, size=draw(st.integers(1, classes)), replace=False)
    logits = rng.integers(-6, 7, size=(samples, classes)) / draw(st.sampled_from([1.0, 2.0, 8.0]))
    return ScoredSamples.of(logits.astype(np.float32), rng.choice(present, size=samples))


def parts(case: ScoredSamples) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    assert case.labels is not None
    assert case.logits is not None
    return case.labels, case.logits.argmax(axis=1), case.logits.astype(np.float64)


@given(cases())
def test_metrics_of_classes_equal_scikit_learns(case: ScoredSamples) -> None:
    labels, predicted, logits = parts(case)
    found, bare = compute_all(case), compute_all(ScoredSamples(case.confusion))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class is predicted and has no samples
        expected = {
            "accuracy": accuracy_score(labels, predicted),
            "balanced_accuracy": balanced_accuracy_score(labels, predicted),
            "macro_f1": f1_score(labels, predicted, average="macro", zero_division=0),
        }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name
        assert bare[name] == found[name], name
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert found["loss"] == pytest.approx(log_loss(labels, probabilities, labels=range(case.num_classes)), rel=1e-9)
    assert "loss" not in bare


@given(cases(num_classes=2))
def test_auroc_equals_scikit_learns(case: ScoredSamples) -> None:
    labels, _, logits = parts(case)
    if len(set(labels.tolist())) < 2:
        assert compute("auroc", case) is None
    else:
        assert compute("auroc", case) == pytest.approx(roc_auc_score(labels, logits[:, 1] - logits[:, 0]), abs=1e-12)


def test_auroc_is_of_two_classes_alone() -> None:
    assert [metric.name for metric in sent_by_clients(2)] == ["auroc", "loss"]
    assert [metric.name for metric in sent_by_clients(3)] == ["loss"]
    assert "auroc" not in compute_all(ScoredSamples.of(np.eye(3, dtype=np.float32), np.arange(3)))


def test_macro_f1_by_hand() -> None:
    counts = np.array([[3, 1, 0], [2, 2, 0], [0, 0, 0]])  # F1 = 6/9 and 4/7; the third class does not occur
    assert compute("macro_f1", ScoredSamples(counts)) == pytest.approx((6 / 9 + 4 / 7) / 2)


def test_undefined_values_are_left_out() -> None:
    assert compute_all(ScoredSamples(np.zeros((2, 2), np.int64))) == {}
    diverged = ScoredSamples.of(np.array([[math.inf, 0.0], [math.nan, 1.0]], np.float32), np.array([0, 1]))
    assert set(compute_all(diverged)) == {"accuracy", "balanced_accuracy", "macro_f1"}


def test_the_server_has_of_a_client_what_the_client_computes() -> None:
    """The confusion matrix and the sent values give every metric of `personal`; other protocols have accuracy."""
    logits = torch.tensor([[0.2, 1.0], [1.0, 0.1], [0.3, 0.4], [2.0, 1.0]])
    labels, own = torch.tensor([1, 0, 0, 1]), torch.tensor([0, 1])
    test = scoring.TestSet(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), labels, own)
    predicted = logits.argmax(dim=1)
    answer = {**count_correct({"": predicted}, test), **personal_scores(predicted, logits, test)}
    found = client_metrics(answer)
    assert found["own"] == {"accuracy": 1.0}
    assert found["personal"] == compute_all(ScoredSamples.of(logits.numpy(), test.labels.numpy()))
    assert list(found["personal"]) == list(METRICS)


def test_means_leave_out_clients_without_a_value() -> None:
    scores = [{"personal": {"accuracy": 0.5, "loss": 1.0}}, {"personal": {"accuracy": 1.0}}, {}]
    assert mean_metrics(scores) == {"personal": {"accuracy": 0.75, "loss": 1.0}}
