import sys
from types import ModuleType

import numpy as np
import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import Dataset, load_dataset
from refprotofl.data.arrays import dataset_from_arrays


def arrays(**changes):
    """Six train and three test images of 5 x 4 in three classes."""
    base = {
        "x_train": np.arange(6 * 20, dtype=np.uint8).reshape(6, 5, 4),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.arange(3 * 20, dtype=np.uint8).reshape(3, 5, 4),
        "y_test": np.array([2, 1, 0]),
    }
    return base | changes


def load_saved(folder, **changes):
    np.savez_compressed(folder / "own.npz", **arrays(**changes))
    return load_dataset(str(folder / "own.npz"), None, 0)


def test_npz_as_it_should_be(tmp_path):
    data = load_saved(tmp_path)
    assert data.train_inputs.shape == (6, 1, 5, 4)
    assert data.train_inputs.dtype == np.uint8
    assert data.train_labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.class_names == ("0", "1", "2")
    values = np.arange(120) / 255
    assert data.mean == pytest.approx((values.mean(),))
    assert data.std == pytest.approx((values.std(),))


@pytest.mark.parametrize("shape", [(3, 5, 4), (5, 4, 3)])
def test_channels_come_first_whatever_came_in(shape):
    pixels = np.arange(60, dtype=np.uint8).reshape(3, 5, 4)  # one image, channels first
    image = pixels if shape[0] == 3 else pixels.transpose(1, 2, 0)
    data = dataset_from_arrays(arrays(x_train=np.stack([image] * 6), x_test=np.stack([image] * 3)), "own")
    assert np.array_equal(data.train_inputs[0], pixels)
    assert len(data.mean) == 3


def test_floats_up_to_one_are_scaled_alike_in_both_splits():
    data = dataset_from_arrays(arrays(x_train=np.full((6, 5, 4), 0.2), x_test=np.full((3, 5, 4), 1.0)), "own")
    assert data.train_inputs.max() == 51
    assert data.test_inputs.max() == 255


def test_whole_numbers_of_a_float_type_are_taken_as_they_are():
    data = dataset_from_arrays(arrays(x_train=np.full((6, 5, 4), 1.0), x_test=np.full((3, 5, 4), 200.0)), "own")
    assert data.train_inputs.max() == 1
    assert data.test_inputs.max() == 200
    assert data.notes == ()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_all_256_levels_as_floats_come_back_exactly_and_without_a_word(kind):
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    shares = (np.concatenate([levels] * 6) / 255).astype(kind)
    data = dataset_from_arrays(arrays(x_train=shares, x_test=shares[:3]), "own")
    assert np.array_equal(data.train_inputs[0], levels)
    assert data.notes == ()


def test_floats_that_8_bits_do_not_hold_are_rounded_and_reported():
    fine = np.linspace(0, 1, 6 * 20).reshape(6, 5, 4)
    data = dataset_from_arrays(arrays(x_train=fine, x_test=fine[:3]), "own")
    assert np.array_equal(data.train_inputs[:, 0], np.rint(fine * 255))
    (note,) = data.notes
    assert (
        note == "own: images have more precision than the 8 bits that they are stored in; they were rounded to 1/255."
    )


def test_a_constant_image_does_not_divide_by_zero():
    data = dataset_from_arrays(arrays(x_train=np.full((6, 5, 4), 7, np.uint8)), "own")
    assert data.std == (1.0,)


def test_labels_with_gaps_are_numbered_in_order_and_keep_their_names():
    data = dataset_from_arrays(arrays(y_train=np.array([10, 5, 1, 10, 5, 1]), y_test=np.array([1, 5, 10])), "own")
    assert data.train_labels.tolist() == [2, 1, 0, 2, 1, 0]
    assert data.test_labels.tolist() == [0, 1, 2]
    assert data.class_names == ("1", "5", "10")


@pytest.mark.parametrize("kind", [str, np.bytes_])
def test_labels_may_be_names(tmp_path, kind):
    train = np.array(["dog", "cat", "eel", "dog", "cat", "eel"]).astype(kind)
    data = load_saved(tmp_path, y_train=train, y_test=np.array(["eel", "dog", "cat"]).astype(kind))
    assert data.class_names == ("cat", "dog", "eel")
    assert data.train_labels.tolist() == [1, 0, 2, 1, 0, 2]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"y_train": np.zeros(6, int), "y_test": np.zeros(3, int)}, "at least two classes"),
        ({"y_train": np.array([-1, 0, 1, 2, 0, 1])}, "the smallest test label is -1|the smallest train label is -1"),
        ({"y_train": np.arange(6) / 2}, "type float64"),
        ({"y_test": np.array([0, 1, 7])}, "test labels 7 do not occur in train"),
        ({"y_test": np.array(["a", "b", "c"])}, "one kind for both"),
        ({"y_train": np.zeros((6, 3), int)}, r"shape \(6, 3\)"),
        ({"y_train": np.array([0, 1, 2, 0, 1])}, "6 train images but 5 labels"),
        (
            {"x_test": np.zeros((3, 6, 4), np.uint8)},
            "train images are 4 x 5 with 1 channel but test images 4 x 6",
        ),
        ({"x_train": np.zeros((6, 20), np.uint8)}, r"the test inputs have shape \(3, 5, 4\). Vectors are"),
        ({"x_train": np.zeros((6, 5, 4, 2), np.uint8)}, "with 1 or 3 channels"),
        ({"x_train": np.zeros((0, 5, 4), np.uint8)}, "no train images"),
        ({"y_test": np.zeros(0, int)}, "no test labels"),
        ({"x_train": np.full((6, 5, 4), 300)}, "from 0 to 300"),
        ({"x_train": np.full((6, 5, 4), -0.5), "x_test": np.zeros((3, 5, 4))}, "so they are no pixels"),
        ({"x_train": np.full((6, 5, 4), np.nan), "x_test": np.zeros((3, 5, 4))}, "from nan to nan"),
        (
            {"x_train": np.full((6, 5, 4), 40000, np.uint16)},
            r"from 0 to 40000; .* stored in 8 bits: scale them to whole numbers 0\.\.255",
        ),
        ({"x_train": np.full((6, 5, 4), 1.5), "x_test": np.zeros((3, 5, 4))}, "are fractions and run from 0 to 1.5"),
        (
            {"x_train": np.full((6, 5, 4), 99.5), "x_test": np.zeros((3, 5, 4))},
            r"Floats must be in 0\.\.1, or be whole",
        ),
        ({"x_train": np.full((6, 5, 4), 0.5)}, "train images are float64 and test images uint8"),
        ({"x_train": np.full((6, 5, 4), "a")}, "type <U1"),
        ({"x_train": np.array([np.zeros(2), np.zeros(3)], dtype=object)}, "Python objects"),
        ({"y_train": [[1], [1, 2]]}, "not a regular array"),
    ],
)
def test_what_is_wrong_is_said(changes, complaint):
    with pytest.raises(DataError, match=complaint):
        dataset_from_arrays(arrays(**changes), "own")


def test_npz_without_test_arrays(tmp_path):
    np.savez(tmp_path / "own.npz", x_train=np.zeros((2, 3, 3)), y_train=np.arange(2))
    with pytest.raises(DataError, match="lacks x_test, y_test"):
        load_dataset(str(tmp_path / "own.npz"))


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "own.npz", **arrays(y_train=np.array(["a", 1, None, "a", 1, None], dtype=object)))
    with pytest.raises(DataError, match="y_train is an array of Python objects"):
        load_dataset(str(tmp_path / "own.npz"))


@pytest.mark.parametrize("keep", [0, 100, -30])
def test_broken_npz(tmp_path, keep):
    np.savez(tmp_path / "own.npz", **arrays())
    content = (tmp_path / "own.npz").read_bytes()
    (tmp_path / "own.npz").write_bytes(content[:keep])
    with pytest.raises(DataError, match=r"not a readable \.npz file"):
        load_dataset(str(tmp_path / "own.npz"))


@pytest.fixture
def own_module(monkeypatch):
    module = ModuleType("my_own_data")
    monkeypatch.setitem(sys.modules, "my_own_data", module)
    return module


def test_a_function_gives_arrays(tmp_path, monkeypatch):
    lines = [
        "import numpy as np",
        "def load():",
        "    x = np.zeros((4, 2, 2), np.uint8)",
        "    return dict(x_train=x, y_train=[0, 1, 0, 1], x_test=x, y_test=[1, 1, 0, 0])",
    ]
    (tmp_path / "data_of_this_test.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # what the loader adds goes again
    assert load_dataset("data_of_this_test:load").train_inputs.shape == (4, 1, 2, 2)


def test_a_function_gives_a_dataset(own_module):
    images = np.zeros((4, 1, 2, 2), np.uint8)
    labels = np.array([0, 1, 0, 1])
    own_module.load = lambda: Dataset(images, labels, images, labels, ("no", "yes"), (0.5,), (0.5,))
    data = load_dataset("my_own_data:load")
    assert data.class_names == ("no", "yes")


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [
        ("nowhere_to_be_found:load", InputError, "module 'nowhere_to_be_found' not found"),
        ("my_own_data:lod", InputError, "has no 'lod'"),
        ("my_own_data:number", InputError, "is not callable"),
        ("my_own_data:nothing", DataError, "returned NoneType"),
        ("my_own_data:fails", DataError, "ZeroDivisionError: division by zero"),
    ],
)
def test_functions_that_do_not_work(own_module, name, kind, complaint):
    own_module.number = 3
    own_module.nothing = lambda: None
    own_module.fails = lambda: 1 / 0
    with pytest.raises(kind, match=complaint):
        load_dataset(name)
