"""The paper's numbers agree with what it says of them elsewhere."""

from statistics import fmean

import pytest

from refprotofl.studies.reproduce import studies


def test_its_averages_are_the_means_of_its_columns() -> None:
    for method, average in studies.AVERAGE.items():
        column = [studies.TABLE_1[dataset, alpha, method] for dataset in studies.DATASETS for alpha in studies.ALPHAS]
        assert fmean(column) == pytest.approx(average, abs=0.01)


@pytest.mark.parametrize(
    ("dataset", "alpha", "rival", "gain"),
    [
        ("mnist", 0.5, "fedavg", 0.28),
        ("fashion-mnist", 0.5, "fedproto", 0.39),
        ("cifar10", 0.5, "fedproto", 1.18),
        ("cifar100", 0.5, "fedproto", 0.22),
        ("mnist", 100.0, "fedproto", -0.08),
        ("fashion-mnist", 100.0, "fedproto", -0.20),
        ("cifar100", 100.0, "fedproto", 1.60),
    ],
)
def test_its_prose_names_the_gain_over_the_best_rival(dataset: str, alpha: float, rival: str, gain: float) -> None:
    row = {method: studies.TABLE_1[dataset, alpha, method] for method in studies.METHODS}
    ours = row.pop("refprotofl")
    assert max(row, key=row.__getitem__) == rival
    assert ours - row[rival] == pytest.approx(gain)


def test_the_ablation_starts_from_the_first_table() -> None:
    assert studies.TABLE_2[True, True] == studies.TABLE_1["cifar10", 0.5, "refprotofl"]
    assert max(studies.TABLE_2.values()) == studies.TABLE_2[True, True]
