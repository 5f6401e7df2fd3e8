"""Pictures of accuracies: axes and values."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from refprotofl.report.pictures import accuracy, style
from refprotofl.report.pictures.accuracy import Stop, draw_curves, draw_sweep
from refprotofl.report.statistics import Estimate


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures behind the files."""
    figures: list[Figure] = []

    @contextmanager
    def open_figure(*arguments: Any) -> Iterator[Figure]:
        with style.open_figure(*arguments) as figure:
            figures.append(figure)
            yield figure

    monkeypatch.setattr(accuracy, "open_figure", open_figure)
    return figures


def at(*means: float) -> dict[float, Estimate]:
    return {place: Estimate(0.5, 0.02, 3) for place in means}


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ((0.01, 0.03, 0.1, 0.3, 1.0), "log"),
        ((5, 10, 20, 50), "log"),
        ((0.0, 0.1, 1.0, 10.0), "symlog"),
        ((0.0, 0.5, 1.0), "linear"),
    ],
)
def test_values_that_are_far_apart_have_a_logarithmic_axis(
    values: tuple[float, ...], scale: str, drawn: list[Figure], tmp_path: Path
) -> None:
    draw_sweep(at(*values), tmp_path / "p.png", "key", "personal")
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == scale
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{value:g}" for value in values]
    low, high = axes.get_xlim()
    assert low <= min(values) < max(values) <= high


def test_a_sweep_shows_means_and_whole_intervals(drawn: list[Figure], tmp_path: Path) -> None:
    points = {0.1: Estimate(0.6, 0.1, 3), 0.01: Estimate(0.5, None, 1)}
    found = draw_sweep(points, tmp_path / "p.pdf", "refprotofl.keep", "personal", "title")
    assert (
        found == f"{tmp_path / 'p.pdf'}: refprotofl.keep at 2 values, mean over seeds with 95 % confidence intervals."
    )
    (axes,) = drawn[0].axes
    line, *_ = axes.get_lines()
    assert np.asarray(line.get_xdata()).tolist() == [0.01, 0.1]
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([50, 60])
    assert axes.get_ylim() == pytest.approx((45, 75))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("refprotofl.keep", "accuracy, personal (%)")


def test_a_method_that_sends_next_to_nothing_has_no_place_among_bytes(drawn: list[Figure], tmp_path: Path) -> None:
    curves = {
        "much": [Stop(5, 1e6, Estimate(0.5, 0.1, 3)), Stop(10, 2e6, Estimate(0.75, 0.1, 3))],
        "nothing": [Stop(5, 60, Estimate(0.25, None, 1)), Stop(10, 120, Estimate(0.5, None, 1))],
    }
    found = draw_curves(curves, tmp_path / "p.png", "personal")
    assert "2 methods" in found
    by_round, by_bytes = drawn[0].axes
    assert [np.asarray(line.get_xdata()).tolist() for line in by_round.get_lines()] == [[5, 10], [5, 10]]
    assert [np.asarray(line.get_xdata()).tolist() for line in by_bytes.get_lines()] == [[1, 2]]
    assert np.asarray(by_round.get_lines()[0].get_ydata()).tolist() == [50, 75]
    assert all(place == round(place) for place in by_round.get_xticks())
