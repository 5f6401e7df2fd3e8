"""Clients as the data have them: folders or a `client` array, their names, and who is left out."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import Dataset, FederatedData, federate, load_dataset
from refprotofl.data.arrays import dataset_from_arrays
from refprotofl.data.reading import Reading
from refprotofl.experiment import Experiment

NATURAL = Reading(natural=True)


def fill(folder: Path, **clients: dict[str, int]) -> None:
    """So many images of each class a client; the brightness counts them through."""
    shade = 0
    for client, classes in clients.items():
        for name, each in classes.items():
            (folder / client / name).mkdir(parents=True)
            for number in range(each):
                Image.new("L", (2, 2), shade % 256).save(folder / client / name / f"{number:02}.png")
                shade += 1


def load(folder: Path, seed: int = 0) -> Dataset:
    return load_dataset(str(folder), None, seed, NATURAL)


def owned(data: Dataset) -> dict[str, int]:
    assert data.train_owners is not None
    return dict(zip(data.client_names, np.bincount(data.train_owners).tolist(), strict=True))


def test_client_folders_with_a_split(tmp_path: Path) -> None:
    fill(tmp_path / "train", ben={"cat": 3, "dog": 2}, anna={"dog": 4})
    fill(tmp_path / "test", anna={"dog": 1}, ben={"cat": 2})
    data = load(tmp_path)
    assert owned(data) == {"anna": 4, "ben": 5}
    assert data.class_names == ("cat", "dog")
    assert data.test_owners is not None
    assert data.test_owners.tolist() == [0, 1, 1]
    assert data.train_inputs[:, 0, 0, 0].tolist() == [5, 6, 7, 8, 0, 1, 2, 3, 4]


def test_a_common_test_set_next_to_client_folders(tmp_path: Path) -> None:
    fill(tmp_path / "train", ben={"cat": 3}, anna={"dog": 4})
    fill(tmp_path, test={"cat": 2, "dog": 2})
    data = load(tmp_path)
    assert data.test_owners is None
    assert np.bincount(data.test_labels).tolist() == [2, 2]


def test_without_a_split_a_fifth_of_each_clients_classes_is_held_out(tmp_path: Path) -> None:
    fill(tmp_path, ben={"cat": 10, "dog": 5}, anna={"dog": 20})
    data = load(tmp_path)
    assert owned(data) == {"anna": 16, "ben": 12}
    assert data.test_owners is not None
    assert np.bincount(data.test_owners).tolist() == [4, 3]
    assert np.array_equal(data.test_inputs, load(tmp_path).test_inputs)
    assert not np.array_equal(data.test_inputs, load(tmp_path, seed=1).test_inputs)


@pytest.mark.parametrize(
    ("paths", "complaint"),
    [
        ((), "has no client folders"),
        (("cat/0.png", "dog/0.png"), r'cat has no class folders\. Layouts for partition = "natural": FOLDER'),
        (("anna/cat/0.png", "dog/0.png"), "dog has no class folders"),
        (("anna/cat/deep/0.png",), "is not directly in its class folder"),
        (("anna/cat/0.png", "anna/0.png"), r"anna/0\.png is next to folders"),
        (("anna/cat/0.png", "0.png"), r"0\.png is next to folders"),
        (("train/anna/cat/0.png",), "no folder test"),
        (("train/anna/cat/0.png", "train/anna/dog/0.png", "test/eve/cat/0.png"), "test client 'eve' has no training"),
    ],
)
def test_layouts_that_are_not_clear_are_refused(tmp_path: Path, paths: tuple[str, ...], complaint: str) -> None:
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(tmp_path / path)
    with pytest.raises(DataError, match=complaint):
        load(tmp_path)


def test_a_client_may_lack_a_class_but_not_all(tmp_path: Path) -> None:
    fill(tmp_path, ben={"cat": 5, "dog": 5}, anna={"cat": 0, "dog": 5})
    assert owned(load(tmp_path)) == {"anna": 4, "ben": 8}
    fill(tmp_path, eve={"cat": 0})
    with pytest.raises(DataError, match="eve contains no images"):
        load(tmp_path)


def arrays(**changes: object) -> dict[str, object]:
    labels = np.arange(12) % 2
    images = np.zeros((12, 2, 2), np.uint8)
    base = {"x_train": images, "y_train": labels, "x_test": images[:4], "y_test": labels[:4]}
    return {**base, "client": np.repeat([10, 9, 2], 4), **changes}


def test_a_client_array_of_numbers_is_ordered_by_value() -> None:
    data = dataset_from_arrays(arrays(client_test=np.array([2, 2, 10, 9])), "own")
    assert data.client_names == ("2", "9", "10")
    assert data.train_owners is not None
    assert data.train_owners.tolist() == [2] * 4 + [1] * 4 + [0] * 4
    assert data.test_owners is not None
    assert data.test_owners.tolist() == [0, 0, 2, 1]


def test_a_client_array_of_names_in_a_file(tmp_path: Path) -> None:
    names = np.array(["b", "a"] * 6)
    path = tmp_path / "own.npz"
    np.savez(path, **{name: np.asarray(value) for name, value in arrays(client=names).items()})  # type: ignore[arg-type]
    assert owned(load(path)) == {"a": 6, "b": 6}
    assert owned(load_dataset(str(path))) == {"a": 6, "b": 6}  # harmless with another partition
    assert load(path).test_owners is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"client": np.zeros(12)}, "client has type float64"),
        ({"client": np.zeros(11, int)}, r"client has shape \(11,\); give one client per sample, shape \(12,\)"),
        ({"client_test": np.zeros(5, int)}, r"client_test has shape \(5,\)"),
        ({"client": np.array(["a", " "] * 6)}, "empty name"),
        ({"client": None, "client_test": np.zeros(4, int)}, "client_test but no client"),
        ({"client_test": np.array([2, 2, 7, 9])}, "test client '7' has no training samples"),
    ],
)
def test_client_arrays_that_do_not_do(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        dataset_from_arrays(arrays(**changes), "own")


def test_a_set_without_clients_is_refused() -> None:
    with pytest.raises(InputError, match="dataset = 'digits' does not assign its samples to clients"):
        load_dataset("digits", None, 0, NATURAL)


def crowd(test: bool = False) -> Dataset:
    """Clients big, mid and tiny with 60, 30 and 10 samples of two classes."""
    owners = np.repeat(["mid", "big", "tiny"], [30, 60, 10])
    labels = np.arange(100) % 2
    images = np.arange(100, dtype=np.uint8).reshape(100, 1, 1, 1) * np.ones((1, 2, 2), np.uint8)
    given = {"x_train": images, "y_train": labels, "x_test": images[::2], "y_test": labels[:50]}
    return dataset_from_arrays(given | {"client": owners} | ({"client_test": owners[::2]} if test else {}), "crowd")


def dealt(dataset: Dataset, **keys: object) -> FederatedData:
    base = {"partition": "natural", "min-size": 5, "public": {"per-class": 4}}
    return federate(Experiment.parse({**base, **keys}), dataset)


def test_each_keeps_its_own_but_the_public_images() -> None:
    data = dealt(crowd())
    assert data.client_names == ("big", "mid", "tiny")
    owners = data.dataset.train_owners
    assert owners is not None
    assert [set(owners[share]) for share in data.client_indices] == [{0}, {1}, {2}]
    everything = np.concatenate([data.public_indices, *data.client_indices])
    assert sorted(everything) == list(range(100))
    assert np.bincount(data.public_labels).tolist() == [4, 4]
    assert data.notes == ()


def test_a_client_with_too_few_samples_is_left_out_and_reported() -> None:
    data = dealt(crowd(test=True), **{"min-size": 20})
    assert data.client_names == ("big", "mid")
    assert len(data.client_indices) == len(data.own_test_indices) == 2
    (left,) = data.partition_notes.left_out.items()
    assert left[0] == "tiny"
    assert 1 <= left[1] <= 10
    assert data.notes == (f"Clients left out, with fewer than min-size = 20 samples: tiny ({left[1]}).",)
    assert json.loads(json.dumps(vars(data.partition_notes)))["left_out"] == {"tiny": left[1]}
    with pytest.raises(InputError, match=r"min-size = 64: the largest client, 'big', has 5[0-9] samples"):
        dealt(crowd(), **{"min-size": 64})


def test_own_tests_are_the_clients_if_the_data_name_them_and_like_training_else() -> None:
    by_owner, drawn = dealt(crowd(test=True)), dealt(crowd())
    assert [len(share) for share in by_owner.own_test_indices] == [30, 15, 5]
    assert by_owner.dataset.test_owners is not None
    assert [set(by_owner.dataset.test_owners[share]) for share in by_owner.own_test_indices] == [{0}, {1}, {2}]
    assert sorted(np.concatenate(drawn.own_test_indices)) == list(range(50))


def test_the_train_limit_is_drawn_from_all_clients_before() -> None:
    data = dealt(crowd(), **{"train-limit": 60})
    assert sum(map(len, data.client_indices)) + len(data.public_indices) == 60
    assert data.class_counts().sum(axis=0).tolist() == [26, 26]
