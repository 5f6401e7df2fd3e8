"""The nodes of a round: drawn from the seed among those that are online, with others in reserve."""

from pathlib import Path
from typing import Any

import pytest
from tests.deployments import FIRST, Configs, Grid, Once, deployed, failures, node, participants
from tests.transports.conftest import MakeGrid

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import Presence, draw_cohort, run
from refprotofl.records.events import read_events

TEN = {"clients": 10, "fraction": 0.4}


def asked(folder: Path) -> list[list[int]]:
    return [event["asked"] for event in read_events(folder) if event["event"] == "round"]


def drawn(changed: dict[str, Any], here: set[int], expected: set[int] | None = None) -> list[list[int]]:
    presence = Presence(here, expected or set())
    return [draw_cohort(Experiment(**{**TEN, **changed}), round, presence) for round in range(1, 30)]


def test_with_all_nodes_online_the_cohort_is_that_of_the_simulation() -> None:
    assert drawn({}, set(range(10))) == [draw_cohort(Experiment(**TEN), round) for round in range(1, 30)]


def test_nodes_that_are_away_are_replaced_by_the_same_others_each_time() -> None:
    here = {0, 2, 3, 5, 7, 8}
    found = drawn({}, here)
    assert all(len(one) == 4 and set(one) <= here for one in found)
    assert found == drawn({}, here)
    kept = [set(draw_cohort(Experiment(**TEN), number + 1)) & here for number in range(29)]
    assert all(some <= set(one) for some, one in zip(kept, found, strict=True))


def test_reserves_are_asked_as_well_and_nodes_that_may_be_back_come_last() -> None:
    assert {len(one) for one in drawn({"over-select": 0.5}, set(range(10)))} == {6}
    assert all({1, 2} < set(one) for one in drawn({}, {1, 2}, {4, 5, 6}))
    assert {tuple(one) for one in drawn({}, {1, 2})} == {(1, 2)}
    assert all(len(one) >= 3 for one in drawn({"min-replies": 3}, {1, 2}))  # too few: those that were drawn are asked


def test_what_is_not_needed_is_not_waited_for(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    grid.fate = Once(FIRST + 1, ("ask", 2, "train"), "lost")
    config = settings(fraction=0.67, over_select=0.5, deadline=600)
    deployed(grid, config, tmp_path / "there")
    assert asked(tmp_path / "there") == [[0, 1, 2]] * 3
    assert participants(tmp_path / "there")[1] == [0, 2]
    assert (2, 1, "spare") in failures(tmp_path / "there")
    assert {code for _, _, code in failures(tmp_path / "there")} == {"spare"}


def test_a_node_that_never_comes_is_not_asked_while_others_are_here(
    make_grid: MakeGrid, settings: Configs, apart: Path, tmp_path: Path
) -> None:
    grid = make_grid({FIRST + number: node(apart, tmp_path, number) for number in range(2)})
    deployed(grid, settings(fraction=0.67, deadline=1, rounds=4), tmp_path / "there")
    assert asked(tmp_path / "there") == [[0, 1]] * 4
    assert {round for round, client, _ in failures(tmp_path / "there") if client != 2} == set()


def test_over_selection_is_refused_in_a_simulation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"over-select = 0\.5 is for deployments only"):
        run(Experiment(clients=3, over_select=0.5), out=tmp_path / "run")
