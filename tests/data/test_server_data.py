"""A public set and a test set of the user's own, next to the clients' data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import FederatedData, load_federated
from refprotofl.data.client_files import export_federation
from refprotofl.data.labelled_samples import labelled_from_arrays, load_labelled, renumbered
from refprotofl.data.reading import Reading
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Input
from refprotofl.federation import run
from refprotofl.federation.resolution import resolve, resolve_alike
from refprotofl.records.verify import first_difference

SMALL: dict[str, Any] = {"clients": 3, "min-size": 10}


def saved(path: Path, **arrays: Any) -> str:
    np.savez_compressed(path, **arrays)
    return str(path)


def pictures(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8), np.uint8)


def federated(**changed: Any) -> FederatedData:
    return load_federated(Experiment(**{**SMALL, **changed}))


def seen_as(*names: str) -> Input:
    return Input(class_names=names, shape=(1, 8, 8), mean=(0.5,), std=(0.5,))


def test_classes_are_mapped_by_name() -> None:
    found = labelled_from_arrays({"x": pictures(3), "y": np.array(["cat", "ant", "cat"])}, "here")
    assert found.class_names == ("ant", "cat")
    again = renumbered(found, seen_as("bee", "cat", "ant"), "here")
    assert again.labels.tolist() == [1, 2, 1]
    with pytest.raises(DataError, match="the experiment has no class 'ant'; its classes: bee, cat"):
        renumbered(found, seen_as("bee", "cat"), "here")


def test_numbers_are_names_too_and_class_names_give_them_others() -> None:
    plain = labelled_from_arrays({"x": pictures(3), "y": np.array([10, 9, 9])}, "here")
    assert (plain.class_names, plain.labels.tolist()) == (("9", "10"), [1, 0, 0])
    named = labelled_from_arrays({"x": pictures(2), "y": [0, 2], "class_names": ["a", "b", "c"]}, "here")
    assert (named.class_names, named.labels.tolist()) == (("a", "b", "c"), [0, 2])


def test_one_class_is_enough_for_a_node(tmp_path: Path) -> None:
    name = saved(tmp_path / "one.npz", x=pictures(4), y=np.zeros(4, np.int64))
    assert load_labelled(name, "data-path", None, Reading()).class_names == ("0",)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": pictures(2)}, "must hold x and y"),
        ({"x": pictures(2), "y": [1, 2, 3]}, "2 samples but 3 labels"),
        ({"x": pictures(2), "y": [0, 5], "class_names": ["a"]}, "a label 5, but only 1 class names"),
        ({"x": pictures(2), "y": ["a", "z"], "class_names": ["a"]}, "the label 'z' is not among its class_names"),
    ],
)
def test_what_is_no_set_is_reported(arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        labelled_from_arrays(arrays, "here")


def test_a_public_set_apart_leaves_the_clients_all_their_data(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(10), 3)
    name = saved(tmp_path / "public.npz", x=pictures(30), y=labels)
    data = federated(public={"dataset": name})
    assert sum(map(len, data.client_indices)) == len(data.dataset.train_labels)
    assert (data.public_size, data.public_classes) == (30, tuple(range(10)))  # as many as its scarcest class has
    assert sorted(data.public_labels) == sorted(labels)
    assert federated(public={"dataset": name, "per-class": 2}).public_size == 20
    with pytest.raises(InputError, match=r"public.per-class = 4: public.dataset has 3 samples of class '0'; use 3 or"):
        federated(public={"dataset": name, "per-class": 4})


def test_a_class_without_public_images_is_not_covered(tmp_path: Path) -> None:
    names = np.arange(10).astype(str)
    name = saved(tmp_path / "public.npz", x=pictures(4), y=["1", "1", "7", "7"], class_names=names)
    assert federated(public={"dataset": name}).public_classes == (1, 7)


def test_the_sets_apart_say_what_images_look_like(tmp_path: Path) -> None:
    images = pictures(20)
    name = saved(tmp_path / "public.npz", x=images, y=np.arange(20) % 10)
    data = federated(public={"dataset": name})
    assert data.dataset.mean == pytest.approx((images.mean() / 255,))
    given = saved(tmp_path / "given.npz", x=images, y=np.arange(20) % 10, mean=[0.25], std=[0.5])
    assert (federated(public={"dataset": given}).dataset.mean, federated(public={"dataset": given}).dataset.std) == (
        (0.25,),
        (0.5,),
    )


def test_a_test_set_apart_is_what_is_scored(tmp_path: Path) -> None:
    name = saved(tmp_path / "test.npz", x=pictures(40), y=np.arange(40) % 10)
    data = federated(test={"dataset": name})
    assert np.array_equal(data.test_inputs[:, 0], pictures(40))
    assert all(len(own) <= 40 for own in data.own_test_indices)


def test_images_that_two_sets_have_in_common_are_reported(tmp_path: Path) -> None:
    known = federated().dataset
    seen = saved(tmp_path / "seen.npz", x=known.train_inputs[:20], y=known.train_labels[:20])
    notes = federated(public={"dataset": seen}).notes
    assert any("20 of the public images are also training images" in note for note in notes)
    fresh = saved(tmp_path / "fresh.npz", x=pictures(20), y=np.arange(20) % 10)
    assert federated(public={"dataset": fresh}).notes == ()


def test_a_set_with_other_classes_than_the_clients_is_refused(tmp_path: Path) -> None:
    name = saved(tmp_path / "public.npz", x=pictures(6), y=np.arange(6) % 3)
    with pytest.raises(DataError, match="dataset: the experiment has no class '3'; its classes: 0, 1, 2"):
        federated(public={"dataset": name})


def test_a_named_set_lends_its_splits() -> None:
    data = federated(public={"dataset": "digits", "per-class": 2}, test={"dataset": "digits"})
    assert data.public_size == 20
    assert len(data.test_indices) == len(federated().test_indices)


def test_an_experiment_without_sets_apart_has_the_hash_it_had() -> None:
    assert "dataset" not in Experiment().plain()["public"]
    assert "test" not in Experiment().plain()
    assert "min-replies" not in Experiment(**{"min-replies": 2}).plain()


def test_what_the_data_decide_is_known_again_without_them(tmp_path: Path) -> None:
    name = saved(tmp_path / "public.npz", x=pictures(30), y=np.repeat(np.arange(10), 3))
    asked = Experiment(**{**SMALL, "public": {"dataset": name}})
    stored = resolve(asked, load_federated(asked))
    assert resolve_alike(asked, stored) == stored


def test_a_run_with_its_own_sets_repeats_and_resumes(tmp_path: Path) -> None:
    name = saved(tmp_path / "public.npz", x=pictures(30), y=np.repeat(np.arange(10), 3))
    asked = Experiment(**{**SMALL, "public": {"dataset": name}, "rounds": 2, "model": {"name": "mlp"}})
    one, other = run(asked, out=tmp_path / "one"), run(asked, out=tmp_path / "other", workers=2)
    assert first_difference(one.folder, other.folder) is None
    assert run(asked, out=tmp_path / "one", resume=True).reused


def test_an_exported_federation_holds_what_each_would_have(tmp_path: Path) -> None:
    data = federated()
    files = export_federation(data, tmp_path / "files")
    assert [file.name for file in files] == ["client-0.npz", "client-1.npz", "client-2.npz", "public.npz", "test.npz"]
    for number in range(3):
        found = load_labelled(str(files[number]), "data-path", None, Reading())
        rows = data.client_indices[number]
        assert np.array_equal(found.inputs, data.dataset.train_inputs[rows])
        assert found.labels.tolist() == data.dataset.train_labels[rows].tolist()
        assert (found.mean, found.std) == (data.dataset.mean, data.dataset.std)
        assert found.test is not None
        assert len(found.test.labels) == len(data.own_test_indices[number])
    with pytest.raises(InputError, match="not empty"):
        export_federation(data, tmp_path / "files")
