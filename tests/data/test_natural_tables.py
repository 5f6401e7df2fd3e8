"""Tables and arrays without a split as data of a federation: clients, splits, missing values, names of features."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl import Experiment
from refprotofl.core.errors import DataError, InputError
from refprotofl.data import FederatedData, load_dataset, load_federated
from refprotofl.data.labelled_samples import load_labelled, renumbered
from refprotofl.data.reading import Reading, Roles
from refprotofl.deploy.node_data import load_samples
from refprotofl.experiment.sections import Input
from refprotofl.federation.resolution import resolve

SITES = ("basel", "bern", "chur")


def rows(count: int = 120, **changes: Any) -> list[dict[str, Any]]:
    """Return rows of three sites; x tells the class, `when` falls, and ten rows in turn are one recording."""
    return [
        {"x": number % 2 + number / 1000, "z": number, "site": SITES[number % 3], "sick": number % 2 + 1}
        | {"when": -number, "take": f"{SITES[number % 3]}-{number // 30}"}
        | {name: make(number) for name, make in changes.items()}
        for number in range(count)
    ]


def write(path: Path, table: list[dict[str, Any]]) -> Path:
    lines = [",".join(table[0]), *(",".join(str(value) for value in row.values()) for row in table)]
    path.write_text("\n".join(lines) + "\n")
    return path


def federated(path: Path, data: dict[str, Any], **keys: Any) -> FederatedData:
    base = {"dataset": str(path), "min-size": 5, "public": {"per-class": 3}, "data": {"label": "sick", **data}}
    return load_federated(Experiment.parse({**base, **keys}))


def test_clients_of_a_column(tmp_path: Path) -> None:
    data = federated(write(tmp_path / "a.csv", rows()), {"client": "site", "ignore": ["when", "take"]})
    assert data.partition_notes.kind == "natural"
    assert data.client_names == SITES
    assert data.dataset.kind == "vector"
    assert data.dataset.feature_names == ("x", "z")
    assert data.dataset.class_names == ("1", "2")
    assert [len(own) for own in data.own_test_indices] == [8, 8, 8]
    assert sum(len(own) for own in data.client_indices) == 120 - 24 - 6
    for site, (train, test) in enumerate(zip(data.client_indices, data.own_test_indices, strict=True)):
        assert set(data.dataset.train_inputs[train][:, 1] % 3) == {site}
        assert set(data.dataset.test_inputs[test][:, 1] % 3) == {site}
    both = {*data.dataset.train_inputs[:, 1].tolist()}, {*data.dataset.test_inputs[:, 1].tolist()}
    assert not both[0] & both[1]


def test_by_time_the_latest_of_each_client_are_for_testing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows())
    data = federated(path, {"client": "site", "order": "when", "ignore": ["take"]})
    assert sorted(data.dataset.test_inputs[:, 1].tolist()) == list(
        range(24)
    )  # `when` falls, so the first rows are latest


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_a_recording_is_on_one_side_of_every_split(tmp_path: Path, validation: float) -> None:
    path = write(tmp_path / "a.csv", rows())
    data = federated(path, {"client": "site", "group": "take", "ignore": ["when"]}, validation=validation)
    takes = [
        set((inputs[:, 1] // 30).astype(int).tolist())
        for inputs in (data.dataset.train_inputs, data.dataset.test_inputs)
    ]
    assert takes[0] | takes[1] == {0, 1, 2, 3}
    for site in range(3):
        own = [
            inputs[inputs[:, 1] % 3 == site][:, 1] // 30
            for inputs in (data.dataset.train_inputs, data.dataset.test_inputs)
        ]
        assert not set(own[0]) & set(own[1])
        if validation:
            train, held = (
                data.dataset.train_inputs[part[site]][:, 1] // 30
                for part in (data.client_indices, data.own_test_indices)
            )
            assert not set(train) & set(held)


def test_another_partition_of_the_same_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows())
    data = federated(path, {"client": "site", "ignore": ["when", "take"]}, partition="iid", clients=4)
    assert data.num_clients == 4
    assert data.client_names == ()


def test_small_clients_are_named_and_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(site=lambda number: "tiny" if number < 4 else SITES[number % 3]))
    ignored = {"client": "site", "ignore": ["when", "take"]}
    data = federated(path, {**ignored, "min-samples": 5})
    assert data.client_names == SITES
    assert any("left out, with fewer than data.min-samples = 5 samples: tiny (" in note for note in data.notes)
    assert federated(path, {**ignored, "min-samples": 1}, **{"min-size": 64}).client_names == (*SITES, "tiny")
    with pytest.raises(
        InputError, match=r"data\.min-samples = 90: the largest client, '\w+', has .* use a smaller data"
    ):
        federated(path, {**ignored, "min-samples": 90})
    with pytest.raises(InputError, match=r'has data\.min-samples = 5, which is for partition = "natural", not "iid"'):
        federated(path, {**ignored, "min-samples": 5}, partition="iid")


@pytest.mark.parametrize(
    ("site", "complaint"),
    [
        (
            lambda number: "Basel" if number == 7 else SITES[number % 3],
            "'Basel' and 'basel' differ only in case or spaces",
        ),
        (lambda number: "basel", "all samples are of the client 'basel'"),
    ],
)
def test_clients_that_are_most_likely_a_mistake(tmp_path: Path, site: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        federated(write(tmp_path / "a.csv", rows(site=site)), {"client": "site", "ignore": ["when", "take"]})


def test_missing_values_are_never_in_the_public_set(tmp_path: Path) -> None:
    from refprotofl.federation.simulation import public_samples

    path = write(tmp_path / "a.csv", rows(x=lambda number: "?" if number % 5 else number % 2))
    data = federated(path, {"client": "site", "ignore": ["when", "take", "z"], "missing": "mean"})
    means = (0.25,)
    sent = public_samples(data, means)
    assert sent is not None
    gaps = np.isnan(data.public_inputs)
    assert gaps.any()
    assert sent.inputs.numpy()[gaps].tolist() == [0.25] * int(gaps.sum())


def test_arrays_without_a_split(tmp_path: Path) -> None:
    table = rows()
    arrays = {name: np.array([row[name] for row in table]) for name in ("site", "sick", "when", "take")}
    series = np.array([[[row["x"], row["z"]]] for row in table], np.float32)
    np.savez(tmp_path / "a.npz", signal=series, **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"lacks x_train, y_train, x_test, y_test; it must hold .*, or x and y"):
        federated(tmp_path / "a.npz", {"client": "site", "kind": "series"})
    np.savez(tmp_path / "a.npz", x=series, **arrays)  # type: ignore[arg-type]
    keys = {"client": "site", "kind": "series", "group": "take"}
    data = federated(tmp_path / "a.npz", keys)
    assert data.dataset.kind == "series"
    assert data.dataset.shape == (1, 2)
    assert data.client_names == SITES
    with pytest.raises(InputError, match=r"data\.client = 'hospital': .*a\.npz has no array 'hospital', only"):
        federated(tmp_path / "a.npz", {**keys, "client": "hospital"})
    roles = Roles(label="sick", group="take", split="when")
    with pytest.raises(DataError, match=r"split has '0' for sample 0; write train or test"):
        load_dataset(str(tmp_path / "a.npz"), reading=Reading(kind="series", roles=roles))


def test_a_node_finds_the_columns_by_name(tmp_path: Path) -> None:
    whole = federated(write(tmp_path / "a.csv", rows()), {"client": "site", "ignore": ["when", "take"]})
    seen = resolve(Experiment.parse({"data": {"label": "sick"}, "public": {"per-class": 3}}), whole).known_input
    assert seen.feature_names == ("x", "z")
    own = [{"z": row["z"], "sick": row["sick"], "x": row["x"]} for row in rows()]
    path = write(tmp_path / "node.csv", own)
    found = renumbered(load_labelled(str(path), "data-path", None, Reading(roles=Roles(label="sick"))), seen, "node")
    assert found.inputs[:, 1].tolist() == [row["z"] for row in own]
    lacking = write(tmp_path / "b.csv", [{"sick": row["sick"], "x": row["x"], "y": 0} for row in own])
    with pytest.raises(DataError, match=r"node has no column 'z', which the model takes\. Its columns: x, y"):
        renumbered(load_labelled(str(lacking), "data-path", None, Reading(roles=Roles(label="sick"))), seen, "node")


def test_a_node_splits_by_recording(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(site=lambda number: "one", take=lambda number: number // 10))
    seen = Input(class_names=("1", "2"), shape=(2,), mean=(0.0, 0.0), std=(1.0, 1.0), kind="vector")
    table = {"label": "sick", "group": "take", "ignore": ["when", "site"]}
    experiment = Experiment.parse({"data": table}).model_copy(update={"input": seen})
    node = load_samples(_Config(str(path)), experiment, 0)  # type: ignore[arg-type]
    sides = [set((part.inputs[:, 1] // 10).astype(int).tolist()) for part in (node.train, node.own_test)]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == 2


class _Config:
    """The keys of a node that its data depend on."""

    hold_out = 0.2

    def __init__(self, data_path: str) -> None:
        self.data_path = data_path


@pytest.mark.parametrize(
    ("arrays", "data", "complaint"),
    [
        (
            {"x": [[1.0, np.nan], [1, 2]] * 10},
            {},
            r"sample 0 has a missing value \(NaN\), as have 9 more; fill it in, or",
        ),
        ({"x": [[[1.0, 2.0]], [[1.0]]] * 10}, {}, "x is not a regular array"),
        ({"x": [""] + ["a b"] * 19}, {"kind": "tokens"}, "sample 0 is an empty text"),
        (
            {"x": [[1, 9]] * 20, "vocabulary": ["a", "b"]},
            {"kind": "tokens"},
            "a number above 2, which is the size of the",
        ),
        ({"x": [[1.0, 2.0]] * 7 + [[1, np.inf]] + [[1, 2]] * 12}, {}, "sample 7 has an infinite value"),
        ({"x": [[1, 2]] * 13 + [[0, 2]] + [[1, 0]] * 6}, {"kind": "tokens"}, "sample 13 has padding before a token"),
        ({"x": [[1, 2]] * 18 + [[3, -1], [1, 2]]}, {"kind": "tokens"}, "sample 18 has a number below 0"),
        ({"x": [[1, 2]] * 19 + [[1, 70_000]]}, {"kind": "tokens"}, "here:arrays has the token 70,000: number the"),
        (
            {"x": [[1.0, np.nan]] * 4 + [[1, 2]] * 11 + [[1, np.inf]] + [[1, 2]] * 4},
            {"missing": "drop"},
            "sample 15 has an infinite value",
        ),
        (
            {"x": np.full((20, 3, 8), -0.5)},
            {},
            'run from -0.5 to -0.5, so they are no pixels. Set data.kind = "series"',
        ),
        ({"x": [[1.0, 2.0]] * 20, "y": [0, 1]}, {}, r"y has shape \(2,\); give one value per sample, \(20,\)"),
        ({"x": [[1.0, 2.0]] * 20, "y": [0.5, 1] * 10}, {}, "labels have type float64; use whole numbers"),
    ],
)
def test_arrays_that_are_wrong_are_refused_by_sample(
    monkeypatch: pytest.MonkeyPatch, arrays: dict[str, Any], data: dict[str, Any], complaint: str
) -> None:
    monkeypatch.setattr("refprotofl.data.loading.load_object", lambda *_: lambda: {"y": [1, 6] * 10, **arrays})
    with pytest.raises(DataError, match=complaint):
        load_federated(Experiment.parse({"dataset": "here:arrays", "data": data, "min-size": 1}))
