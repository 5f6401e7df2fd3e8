import gzip
import hashlib

import numpy as np
import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import load_dataset, locations
from refprotofl.data.locations import find
from refprotofl.data.standard import FASHION_MNIST, MNIST, parse_idx


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", ["mnist", "MNIST/raw", "."])
def test_what_was_written_is_read(tmp_path, write_idx_set, packed, below):
    written = write_idx_set(tmp_path / below, packed)
    data = load_dataset("mnist", tmp_path, 0)
    assert data.train_inputs.shape == (20, 1, 4, 3)
    assert data.train_inputs.dtype == np.uint8
    assert np.array_equal(data.train_inputs[:, 0], written["train-images-idx3-ubyte"])
    assert np.array_equal(data.test_labels, written["t10k-labels-idx1-ubyte"])
    assert data.train_labels.dtype == np.int64
    assert data.train_inputs.flags.writeable
    assert data.test_inputs.flags.writeable


def test_the_named_folder_comes_before_the_environments(tmp_path, write_idx_set, monkeypatch):
    write_idx_set(tmp_path / "asked" / "mnist", samples=20)
    write_idx_set(tmp_path / "environment" / "mnist", samples=40)
    monkeypatch.setenv("REFPROTOFL_DATA", str(tmp_path / "environment"))
    assert len(load_dataset("mnist", tmp_path / "asked").train_inputs) == 20
    assert len(load_dataset("mnist").train_inputs) == 40


def test_a_data_folder_that_is_not_there_is_the_users_mistake(tmp_path):
    with pytest.raises(InputError, match="folder not found"):
        load_dataset("mnist", tmp_path / "nowhere")


def test_truncated_gzip_names_the_file(tmp_path, write_idx_set):
    write_idx_set(tmp_path / "mnist")
    file = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is truncated.*fetch it again"):
        load_dataset("mnist", tmp_path)


def test_not_a_gzip_at_all(tmp_path, write_idx_set):
    write_idx_set(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"<html>404</html>")
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz is truncated or corrupt"):
        load_dataset("mnist", tmp_path)


def test_a_packed_file_that_swells_is_not_unpacked(tmp_path, write_idx_set, monkeypatch):
    write_idx_set(tmp_path / "mnist")
    monkeypatch.setattr(locations, "LARGEST", 1000)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz is larger than any file of a known set"):
        load_dataset("mnist", tmp_path)


def test_images_and_labels_that_do_not_belong_together(tmp_path, write_idx_set, pack_idx):
    write_idx_set(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(pack_idx(np.zeros(19)))
    with pytest.raises(DataError, match=r"20 images, .*19 labels"):
        load_dataset("mnist", tmp_path)


def test_a_label_outside_the_classes(tmp_path, write_idx_set, pack_idx):
    write_idx_set(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(pack_idx(np.full(20, 10)))
    with pytest.raises(DataError, match="label 10"):
        load_dataset("mnist", tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "starts with nothing"),
        (bytes((0, 0, 8, 1)) + b"\0\0\0\x03abc", "not an IDX file of 3 dimensions"),
        (bytes((0, 0, 8, 3)) + b"\0\0", "truncated within its header"),
        (bytes((0, 0, 8, 3)) + b"\0\0\0\x02" * 3 + b"1234567", "promises 8 bytes of data, 7 are there"),
        (
            bytes((0, 0, 8, 3)) + b"\xff\xff\xff\xff" * 3,
            "promises 79,228,162,458,924,105,385,300,197,375 bytes",
        ),
    ],
)
def test_broken_idx(content, complaint):
    with pytest.raises(DataError, match=complaint):
        parse_idx(content, 3, "some file")


def test_loose_files_of_the_other_set_are_not_taken(tmp_path, write_idx_set, monkeypatch):
    write_idx_set(tmp_path)
    name = "t10k-labels-idx1-ubyte"
    assert find(FASHION_MNIST, tmp_path) is not None
    # Let MNIST's published labels be those that lie there: then they are not Fashion-MNIST's.
    content = gzip.decompress((tmp_path / f"{name}.gz").read_bytes())
    monkeypatch.setitem(MNIST.contents, name, "sha256:" + hashlib.sha256(content).hexdigest())
    assert find(FASHION_MNIST, tmp_path) is None
    assert find(MNIST, tmp_path) is not None
