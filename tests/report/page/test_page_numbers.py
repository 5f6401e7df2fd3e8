"""The numbers of a page are those of the run folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.core.units import size
from refprotofl.experiment import Experiment
from refprotofl.report.comparison import OverSeeds
from refprotofl.report.page.anchors import project
from refprotofl.report.page.collect import find_runs, gather, labels_of
from refprotofl.report.page.comparison_page import Member, comparison_page, frontier_figure
from refprotofl.report.page.curves import Stop, stops_of, thinned, time_unit
from refprotofl.report.page.elements import Figure, Page, Table
from refprotofl.report.page.run_reader import read_run
from refprotofl.report.page.static_figures import draw_figure
from refprotofl.report.page.vega import spec_of
from refprotofl.report.statistics import Estimate


def figure(page: Page, name: str) -> Figure:
    return next(one for one in page.figures if one.name == name)


@pytest.fixture
def summary(finished: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((finished / "summary.json").read_text())
    return found


def test_the_last_point_of_every_curve_is_the_summary(finished: Path, summary: dict[str, Any]) -> None:
    page = gather([finished])
    last = {row[1]: row[2] for row in figure(page, "accuracy-by-round").rows if row[0] == 4}
    assert last == {name: share for name, share in summary["accuracy"].items() if share is not None}
    sent = summary["communication"]
    ends = {row[1]: row[2] for row in figure(page, "accuracy-by-bytes").rows if row[0] == 4}
    up, down = sent["uplink"]["payload_bytes"], sent["downlink"]["payload_bytes"]
    assert ends == {
        "uplink": up,
        "downlink": down,
        "total": up + down + sent["one_off"]["payload_bytes"],
    }


def test_clients_are_sorted_and_have_their_samples(finished: Path, summary: dict[str, Any]) -> None:
    page = gather([finished])
    rows = figure(page, "clients-personal").rows
    assert [row[2] for row in rows] == sorted(summary["accuracy_per_client"]["personal"])
    held = figure(page, "partition").rows
    for _, client, _, samples in rows:
        assert samples == sum(int(str(count)) for name, _, count in held if name == client)
    assert sum(int(str(row[3])) for row in rows) == 300 - 20  # the public set belongs to no client


def test_the_confusion_matrix_is_the_summary_s(finished: Path, summary: dict[str, Any]) -> None:
    rows = figure(gather([finished]), "confusion").rows
    assert sum(int(str(row[2])) for row in rows) == sum(map(sum, summary["confusion"]))
    right = {row[0]: row[3] for row in rows if row[0] == row[1]}
    assert [right[str(label)] for label in range(10)] == pytest.approx(summary["accuracy_per_class"])


def test_traffic_is_reported_at_three_levels(finished: Path, summary: dict[str, Any]) -> None:
    """The wire is what a relay counted, where one did."""

    def levels() -> Table:
        parts = [part for section in gather([finished]).sections for part in section.parts]
        return next(part for part in parts if isinstance(part, Table) and part.title == "Traffic by level")

    sent = summary["communication"]
    assert [row[1] for row in levels().rows] == [f"{sent[way]['parameters']:,}" for way in ("uplink", "downlink")]
    assert [row[3] for row in levels().rows] == ["-", "-"]
    counted = {"up": 2_500_000, "down": 7_000, "connections": 3, "refused": 0, "flipped": 0, "seconds": 1.5}
    (finished / "wire.json").write_text(json.dumps(counted))
    assert [row[3] for row in levels().rows] == [size(2_500_000), size(7_000)]
    (finished / "wire.json").write_text('{"up": -1}')
    with pytest.raises(DataError, match="is not a file of refprotofl relay"):
        gather([finished])


def test_shares_of_masks_add_up(finished: Path) -> None:
    page = gather([finished])
    for round in range(1, 5):
        shares = [float(str(row[2])) for row in figure(page, "mask-parts").rows if row[0] == round]
        assert sum(shares) == pytest.approx(1)
        ages = [float(str(row[3])) for row in figure(page, "mask-ages").rows if row[0] == round]
        assert sum(ages) == pytest.approx(1)


def test_anchors_are_drawn_with_the_class_means_of_clients(finished: Path) -> None:
    rows = figure(gather([finished]), "prototypes").rows
    kinds = [row[2] for row in rows]
    assert kinds.count("anchor") == 10
    assert kinds.count("client") == 4 * 10


def test_two_directions_hold_all_of_a_plane() -> None:
    import numpy as np

    plane = np.array([[0.0, 0, 0], [3, 0, 0], [0, 1, 0], [3, 1, 0]])
    flat, explained = project(plane)
    assert explained == pytest.approx(1)
    distances = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    assert distances == pytest.approx(np.linalg.norm(plane[:, None] - plane[None], axis=2))


def test_data_digests_protocols_and_the_machine_are_reported(finished: Path) -> None:
    about = next(section for section in gather([finished]).sections if section.name == "about")
    facts = {part.title: part for part in about.parts}
    assert "protocol" in getattr(facts["Evaluation protocols"], "headings", ())
    assert "torch" in getattr(facts["Environment"], "pairs", {})
    assert getattr(facts["Provenance"], "pairs", {})["data digest"] == "digits"


def test_a_comparison_pairs_by_seed_and_names_the_frontier(grid: Path) -> None:
    page = gather([grid], baseline="refprotofl")
    table = next(part for section in page.sections for part in section.parts if isinstance(part, Table))
    assert [row[0] for row in table.rows] == ["fedavg", "refprotofl"]
    assert "baseline" in table.rows[1]
    points = figure(page, "frontier").records()
    assert [one["method"] for one in points] == ["refprotofl", "fedavg"]  # by bytes
    assert points[0]["front"] == "yes"
    curve = figure(page, "accuracy-by-round").records()
    assert {(one["method"], one["round"]) for one in curve} == {
        (m, r) for m in ("refprotofl", "fedavg") for r in (2, 4)
    }


def test_a_baseline_that_is_not_there_is_an_error_message(grid: Path) -> None:
    with pytest.raises(InputError, match="--against nobody: allowed are fedavg, refprotofl"):
        gather([grid], baseline="nobody")


def test_runs_are_named_by_what_they_differ_in() -> None:
    plain = Experiment(dataset="digits")
    other = Experiment.parse({"dataset": "digits", "refprotofl": {"apud": False}, "seed": 3})
    elsewhere = Experiment.parse({"dataset": "mnist", "method": "fedavg"})
    assert labels_of([plain, other, elsewhere]) == [
        ("dataset = digits", "refprotofl:apud=on", ""),
        ("dataset = digits", "refprotofl:apud=off", ""),
        ("dataset = mnist", "fedavg", ""),
    ]


def test_a_key_that_only_one_run_changed_is_named_with_its_default_for_the_others() -> None:
    plain = Experiment(dataset="digits")
    scheduled = Experiment.parse({"dataset": "digits", "train": {"schedule": "cosine"}})
    uneven = Experiment.parse({"dataset": "digits", "data": {"unit": "words"}})
    assert labels_of([plain, scheduled]) == [
        ("", "refprotofl:train.schedule=constant", ""),
        ("", "refprotofl:train.schedule=cosine", ""),
    ]
    assert labels_of([plain, uneven])[0].block == "data.unit = characters"


def test_tuned_settings_are_in_a_table_and_settings_of_the_data_in_headings() -> None:
    def tuned(dataset: str, method: str, lr: float) -> Experiment:
        return Experiment.parse({"dataset": dataset, "method": method, "train": {"lr": lr}})

    assert labels_of(
        [tuned("digits", "fedavg", 0.1), tuned("digits", "local", 0.03), tuned("mnist", "fedavg", 0.1)]
    ) == [
        ("dataset = digits", "fedavg", "train.lr = 0.1"),
        ("dataset = digits", "local", "train.lr = 0.03"),
        ("dataset = mnist", "fedavg", "train.lr = 0.1"),
    ]
    assert labels_of(
        [tuned("digits", "fedavg", 0.1), tuned("digits", "local", 0.1), tuned("mnist", "fedavg", 0.3)]
    ) == [
        ("dataset = digits, train.lr = 0.1", "fedavg", ""),
        ("dataset = digits, train.lr = 0.1", "local", ""),
        ("dataset = mnist, train.lr = 0.3", "fedavg", ""),
    ]
    assert labels_of([tuned("digits", "fedavg", 0.1), tuned("digits", "fedavg", 0.3)]) == [
        ("", "fedavg:train.lr=0.1", ""),
        ("", "fedavg:train.lr=0.3", ""),
    ]


def test_a_run_that_has_just_begun_has_a_page(finished: Path) -> None:
    events = (finished / "events.jsonl").read_text().splitlines(keepends=True)
    (finished / "events.jsonl").write_text(events[0])
    (finished / "summary.json").unlink()
    page = gather([finished], live=True)
    assert page.progress is not None
    assert (page.progress["done"], page.progress["rounds"], page.progress["ended"]) == (0, 4, False)
    assert [one.name for one in page.figures] == ["partition"]


def test_a_run_of_an_older_version_has_a_page_without_what_it_did_not_record(finished: Path) -> None:
    lines = []
    for line in (finished / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        for name in ("loss", "masks", "spent", "chain"):
            event.pop(name, None)
        event.get("partition", {}).pop("class_counts", None)
        lines.append(json.dumps(event) + "\n")
    (finished / "events.jsonl").write_text("".join(lines))
    names = [one.name for one in gather([finished]).figures]
    assert "accuracy-by-bytes" in names
    assert not {"loss-by-round", "mask-parts", "partition", "time-by-round"} & {*names}


def test_an_unfinished_run_is_in_a_grid_by_its_curve_alone(grid: Path) -> None:
    found = read_run(grid / "fedavg-0")
    members = [
        Member("a", "", found.experiment, found.folder, stops_of(found), 4),
        Member(
            "b", "", found.experiment, found.folder.with_name("b"), [Stop(2, {"personal": 0.5}, None, {"both": 7})], 2
        ),
    ]
    page = comparison_page(members, "two")
    assert page.progress == {"finished": 0, "runs": 2}
    assert {row[0] for row in figure(page, "accuracy-by-round").rows} == {"a", "b"}


def test_rounds_are_thinned_evenly_and_the_last_one_stays() -> None:
    assert thinned(list(range(1, 8)), 3) == [1, 4, 7]
    assert thinned([1, 2, 3], 3) == [1, 2, 3]
    assert thinned(list(range(1, 1001)), 60)[-1] == 1000
    assert len(thinned(list(range(1, 1001)), 60)) <= 60


@pytest.mark.parametrize(
    ("seconds", "unit"), [(50, "seconds"), (119, "seconds"), (300, "minutes"), (1e5, "hours"), (1e6, "days")]
)
def test_a_time_axis_has_the_unit_that_reads_best(seconds: float, unit: str) -> None:
    assert time_unit(seconds)[1] == unit


def test_runs_stand_under_the_headings_that_are_given(grid: Path) -> None:
    """A run may be in several blocks, and is listed once."""
    runs = find_runs([grid])
    page = gather([grid], blocks=[("One", {runs[0]: "first", runs[1]: "second"}), ("Other", {runs[0]: "again"})])
    titles = [section.title for section in page.sections]
    assert any(title.startswith("One") for title in titles)
    assert any(title.startswith("Other") for title in titles)
    assert page.subtitle.startswith("2 runs")
    listed = next(section for section in page.sections if section.name == "runs")
    (table,) = listed.parts
    assert isinstance(table, Table)
    assert len(table.rows) == 2


def sent(name: str, accuracy: float, total: float) -> OverSeeds:
    empty: dict[str, Any] = {key: {} for key in ("values", "worst", "client_spread", "last", "facts")}
    found = {"personal": Estimate(accuracy, None, 1)}
    taken: dict[str, Any] = {
        "local_epochs": 1.0,
        "steps": None,
        "seconds": 1.0,
        "evaluations": 1,
        "notes": (),
        "runs": (),
    }
    return OverSeeds(name=name, method=name, share="", accuracy=found, bytes={"total": total}, **empty, **taken)


def test_a_method_outside_the_axis_still_dominates_others() -> None:
    rows = [sent("alone", 0.5, 10.0), sent("poor", 0.4, 1e6), sent("good", 0.9, 2e6)]
    (found,) = frontier_figure(rows, "personal")
    assert {one["method"]: one["front"] for one in found.records()} == {"poor": "no", "good": "yes"}
    assert "alone" in found.caption
    assert found.levels == (("alone", 0.5),)


def test_a_method_outside_the_axis_is_drawn_as_a_level_on_the_page_and_in_print(tmp_path: Path) -> None:
    rows = [sent("alone", 0.5, 10.0), sent("poor", 0.4, 1e6), sent("good", 0.9, 2e6)]
    (found,) = frontier_figure(rows, "personal")
    (level,) = [layer for layer in spec_of(found)["layer"] if layer["mark"].get("strokeDash") == [2, 3]]
    assert level["data"]["values"] == [{"name": "alone, almost no traffic", "accuracy": 0.5}]
    draw_figure(found, tmp_path / "frontier.svg")
    assert "alone, almost no traffic" in (tmp_path / "frontier.svg").read_text()
