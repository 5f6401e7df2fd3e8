"""The attacks of the audit on numbers that can be checked by hand, and on a tiny run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refprotofl import Experiment
from refprotofl.federation import run
from refprotofl.models import SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.report.tables import as_markdown
from refprotofl.studies.audit.audit import audit, tabulated
from refprotofl.studies.audit.inversion import correlation, search
from refprotofl.studies.audit.membership import (
    MembershipScores,
    Scores,
    auc,
    calibrated,
    confidence,
    over_clients,
    true_positives,
)


def scores(*values: float) -> Scores:
    return np.array(values, dtype=np.float64)


def test_auc_counts_pairs_and_halves_ties() -> None:
    assert auc(scores(3, 2), scores(1, 0)) == 1
    assert auc(scores(1, 3), scores(2, 2)) == 0.5
    assert auc(scores(1, 1), scores(1, 0)) == 0.75


def test_members_true_positives_few_false_alarms() -> None:
    strangers = np.arange(100.0)  # at 1 % one of them may be above the threshold: it is 98
    assert true_positives(scores(97, 98, 98.5, 200), strangers) == 0.5
    assert true_positives(scores(97, 98, 98.5, 200), strangers[:50]) == 1.0
    assert true_positives(scores(99, 200), np.arange(100.0), 0.0) == 0.5


def test_calibration_measures_by_what_others_make_of_a_sample() -> None:
    found = calibrated(scores(5, 5), [scores(1, 4), scores(3, 4)])
    np.testing.assert_allclose(found, [(5 - 2) / 1.0, (5 - 4) / 0.1])


def test_the_interval_is_over_clients_and_repeats() -> None:
    clients = [MembershipScores(scores(1, 2), scores(0, 1)), MembershipScores(scores(0, 0), scores(1, 1))]
    area, _ = over_clients(clients, seed=3)
    assert area.low == 0.0
    assert area.high == pytest.approx(0.875)
    assert over_clients(clients, seed=3) == over_clients(clients, seed=3)


class Flat(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1)


def transparent() -> SplitModel:
    """A model whose embedding is the image itself."""
    model = SplitModel(Flat(), 4, 4, 2, pixels([0.0], [1.0]))
    with torch.no_grad():
        model.feature.weight.copy_(torch.eye(4))
        model.feature.bias.zero_()
    return model


def test_a_transparent_models_prototype_gives_the_sample_back() -> None:
    model, image = transparent(), torch.tensor([[[[0.1, 0.9], [0.7, 0.3]]]])
    prototype = model.embed(model.prepare(image * 255)).detach()
    found = search(model, prototype, torch.full_like(image, 0.5))
    torch.testing.assert_close(found, image, atol=0.03, rtol=0)
    assert correlation(found, image) > 0.99


def test_confidence_is_the_log_odds_of_the_true_class() -> None:
    model, images = transparent(), torch.randint(0, 256, (5, 1, 2, 2), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 0, 1, 1])
    shares = model(model.prepare(images)).softmax(dim=1).detach().to(torch.float64)
    true = shares[torch.arange(5), labels]
    np.testing.assert_allclose(confidence(model, images, labels), (true / (1 - true)).log(), rtol=1e-4, atol=1e-5)


def test_the_audit_of_a_run_repeats(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "dataset": "digits",
        "train-limit": 150,
        "clients": 3,
        "rounds": 1,
        "min-size": 20,
        "public": {"per-class": 2},
        "model": {"name": "mlp", "norm": "none", "embedding": 8},
        "privacy": {"unit": "sample"},
    }
    run(Experiment.parse(keys), out=tmp_path / "run")
    first, second = (audit(tmp_path / "run", None, 2) for _ in range(2))
    assert first == second
    assert set(first.membership) == {"loss", "calibrated"}
    assert first.spent is not None
    table = as_markdown(tabulated([first], ["run"]))
    assert "zero-out-one" in table
    assert "(sample)" in table
