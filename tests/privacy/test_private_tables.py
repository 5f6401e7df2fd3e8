"""Epsilon in comparisons: a column with its unit, a legend with its relation, the worst of all seeds, a figure."""

import json
from pathlib import Path

import pytest

from refprotofl import Experiment
from refprotofl.core.errors import InputError
from refprotofl.privacy.accounting import Spent
from refprotofl.report.comparison import OverSeeds
from refprotofl.report.formats import as_csv, as_json, as_markdown
from refprotofl.report.pictures.accuracy import draw_epsilons
from refprotofl.report.statistics import estimate

SPENT: Spent = {
    "unit": "sample",
    "relation": "zero-out-one",
    "epsilon": 4.567,
    "delta": 1e-5,
    "noise": 1.0,
    "clip": 1.0,
    "rounds": 5,
}


def row(name: str, accuracy: float, privacy: Spent | None) -> OverSeeds:
    return OverSeeds(
        name=name,
        method="local",
        share="adapter",
        accuracy={"personal": estimate([accuracy])},
        values={"personal": {0: accuracy}},
        worst={},
        client_spread={},
        last={},
        evaluations=1,
        bytes=dict.fromkeys(("uplink", "downlink", "one_off", "total"), 1.0),
        local_epochs=1,
        steps=1,
        seconds=1,
        facts={},
        notes=(),
        runs=("a",),
        privacy=privacy,
    )


ROWS = [row("local", 0.5, None), row("local:privacy.noise=1", 0.4, SPENT)]


def test_a_table_has_epsilon_with_its_unit_and_below_it_the_relation() -> None:
    table = as_markdown(ROWS, "")
    assert "4.57 (sample)" in table
    assert "delta 1e-05, zero-out-one" in table
    assert "epsilon" not in as_markdown(ROWS[:1], "")
    assert [one["privacy"] for one in json.loads(as_json(ROWS))] == [None, SPENT]
    assert "4.567" in as_csv(ROWS)


def test_a_figure_is_of_one_unit(tmp_path: Path) -> None:
    assert "per sample" in draw_epsilons(ROWS, tmp_path / "epsilon.png", "personal")
    assert (tmp_path / "epsilon.png").stat().st_size > 1000
    with pytest.raises(InputError, match="the same \\[privacy\\] unit"):
        draw_epsilons(ROWS[:1], tmp_path / "none.png", "personal")


def test_keys_of_privacy_are_in_the_hash_only_where_they_are_changed() -> None:
    assert "privacy" not in Experiment().plain()
    changed = Experiment(privacy={"unit": "sample", "noise": 2.0}).plain()
    assert changed["privacy"] == {"unit": "sample", "noise": 2.0}
