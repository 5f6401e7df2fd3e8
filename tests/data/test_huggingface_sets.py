"""Against plain stand-ins for the tables that the package `datasets` gives, which is an extra."""

import sys

import numpy as np
import pytest
from PIL import Image as Pillow

from refprotofl.data import load_dataset
from refprotofl.data.huggingface import dataset_from_splits
from refprotofl.errors import DataError, InputError


class Image:
    pass


class ClassLabel:
    def __init__(self, *names):
        self.names = list(names)


class Table(dict):
    def __init__(self, features, columns):
        super().__init__(columns)
        self.features = features


def pictures(count, mode="L", size=(3, 2)):
    return [Pillow.new(mode, size, 5) for _ in range(count)]


def table(count=10, image="image", label="label", **options):
    features = {image: Image(), label: ClassLabel("no", "yes"), "id": object()}
    return Table(features, {image: pictures(count, **options), label: [n % 2 for n in range(count)], "id": []})


@pytest.mark.parametrize(("image", "label"), [("image", "label"), ("img", "fine_label"), ("scan", "finding")])
def test_columns_are_found_by_kind(image, label):
    data = dataset_from_splits({"train": table(10, image, label), "test": table(4, image, label)}, "hf:own", 0)
    assert data.train_images.shape == (10, 1, 2, 3)
    assert data.test_labels.tolist() == [0, 1, 0, 1]
    assert data.class_names == ("no", "yes")


def test_without_a_test_split_a_fifth_is_held_out():
    data = dataset_from_splits({"train": table(20)}, "hf:own", 0)
    assert np.bincount(data.test_labels).tolist() == [2, 2]
    assert len(data.train_images) == 16


def test_one_coloured_picture_makes_a_split_rgb():
    train, test = table(4, mode="RGB"), table(4, mode="RGB")
    train["image"][0] = Pillow.new("L", (3, 2), 5)
    assert dataset_from_splits({"train": train, "test": test}, "hf:own", 0).shape == (3, 2, 3)


def test_what_does_not_fit_is_said():
    with pytest.raises(DataError, match="no split called train, only all"):
        dataset_from_splits({"all": table()}, "hf:own", 0)
    with pytest.raises(DataError, match="no single image column among text, label"):
        dataset_from_splits({"train": Table({"text": object(), "label": ClassLabel("a", "b")}, {})}, "hf:own", 0)
    mixed = table(4)
    mixed["image"][1] = Pillow.new("L", (9, 9))
    with pytest.raises(DataError, match=r"differ in size, such as \(3, 2\) and \(9, 9\)"):
        dataset_from_splits({"train": mixed}, "hf:own", 0)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'refprotofl\[hf\]'"):
        load_dataset("hf:someone/something")
