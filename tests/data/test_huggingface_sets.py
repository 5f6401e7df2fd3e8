"""Tables and a repository of parquet files made by the package `datasets` itself; no hub is asked."""

import logging
import sys

import datasets
import numpy as np
import pytest
from PIL import Image

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import image_files, load_dataset
from refprotofl.data.digests import digest_data
from refprotofl.data.huggingface import dataset_from_splits


def pictures(count, mode="L", size=(3, 2)):
    return [Image.new(mode, size, number) for number in range(count)]


def table(images, image="image", label="label"):
    features = {image: datasets.Image(), label: datasets.ClassLabel(names=["no", "yes"]), "id": datasets.Value("int64")}
    numbers = list(range(len(images)))
    columns = {image: images, label: [number % 2 for number in numbers], "id": numbers}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def test_a_repository_is_loaded_by_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "owner" / "name" / "data"
    folder.mkdir(parents=True)
    table(pictures(12)).to_parquet(folder / "train-00000-of-00001.parquet")
    table(pictures(4)).to_parquet(folder / "test-00000-of-00001.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    data = load_dataset("hf:owner/name")
    assert data.train_inputs[:, 0, 0, 0].tolist() == list(range(12))
    assert data.test_labels.tolist() == [0, 1, 0, 1]
    assert data.class_names == ("no", "yes")


def test_a_revision_is_asked_for(monkeypatch):
    asked = []

    def load(name, revision):
        asked.append((name, revision))
        return {"train": table(pictures(10)), "test": table(pictures(4))}

    monkeypatch.setattr(datasets, "load_dataset", load)
    commit = "0123456789abcdef0123456789abcdef01234567"
    load_dataset(f"hf:owner/name@{commit}")
    load_dataset("hf:owner/name")
    assert asked == [("owner/name", commit), ("owner/name", None)]
    assert digest_data(f"hf:owner/name@{commit}", None) == commit


def test_a_name_that_the_hub_does_not_give_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="hf:no/such could not be loaded"):
        load_dataset("hf:no/such")


@pytest.mark.parametrize(("image", "label"), [("image", "label"), ("img", "fine_label"), ("scan", "finding")])
def test_columns_are_found_by_kind(image, label):
    splits = {"train": table(pictures(10), image, label), "test": table(pictures(4), image, label)}
    data = dataset_from_splits(splits, "hf:own", 0)
    assert data.train_inputs.shape == (10, 1, 2, 3)
    assert data.test_labels.tolist() == [0, 1, 0, 1]


def test_without_a_test_split_a_fifth_is_held_out():
    data = dataset_from_splits({"train": table(pictures(20))}, "hf:own", 0)
    assert np.bincount(data.test_labels).tolist() == [2, 2]
    assert len(data.train_inputs) == 16


def test_one_coloured_picture_makes_a_split_rgb():
    train = table([*pictures(1), *pictures(3, mode="RGB")])
    assert dataset_from_splits({"train": train, "test": table(pictures(4, mode="RGB"))}, "hf:own", 0).shape == (3, 2, 3)


def test_what_does_not_fit_is_said():
    with pytest.raises(DataError, match="no split called train, only all"):
        dataset_from_splits({"all": table(pictures(4))}, "hf:own", 0)
    texts = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    with pytest.raises(DataError, match="no single image column among text, label"):
        dataset_from_splits({"train": texts}, "hf:own", 0)
    mixed = table([*pictures(3), Image.new("L", (9, 9))])
    with pytest.raises(DataError, match=r"differ in size, such as \(3, 2\) and \(9, 9\)"):
        dataset_from_splits({"train": mixed}, "hf:own", 0)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'refprotofl\[hf\]'"):
        load_dataset("hf:someone/something")


def test_a_vast_image_of_the_hub_is_not_unpacked(monkeypatch):
    splits = {"train": table([*pictures(9), Image.new("L", (400, 400))]), "test": table(pictures(4))}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, revision: splits)
    monkeypatch.setattr(image_files, "MOST_PIXELS", 100_000)
    with pytest.raises(DataError, match="hf:owner/name has an image that is too large"):
        load_dataset("hf:owner/name")


def test_attempts_to_connect_are_not_shown_one_by_one(monkeypatch, caplog):
    def fail(*_, **__):
        for attempt in range(5):
            logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry %d/5].", attempt)
        raise ConnectionError("no route to the hub")

    level = logging.getLogger("huggingface_hub").level
    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=r"no route to the hub.*HF_HUB_OFFLINE=1"):
        load_dataset("hf:owner/name")
    assert caplog.records == []
    assert logging.getLogger("huggingface_hub").level == level
