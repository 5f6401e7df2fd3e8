"""`resize` and `crop`: mixed sizes become one, for every kind of source."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from refprotofl.core.errors import DataError
from refprotofl.data import load_dataset
from refprotofl.data.reading import Reading, Sizing


def load(path, **sides):
    return load_dataset(str(path), None, 0, Reading(Sizing(**sides)))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 40), st.integers(0, 40))
def test_all_become_the_one_square(width, height, resize, crop):
    crop = min(crop, resize)
    fitted = Sizing(resize, crop).fit(Image.new("L", (width, height), 7), "it")
    assert fitted.size == (crop or resize,) * 2
    assert set(np.asarray(fitted).ravel()) == {7}


def test_by_hand():
    stripes = Image.fromarray(np.repeat(np.array([[10, 20, 30, 40, 50, 60]], np.uint8), 2, axis=0))  # 6 x 2
    assert np.asarray(Sizing(crop=2).fit(stripes, "it")).tolist() == [[30, 40], [30, 40]]
    assert np.asarray(Sizing(resize=2, crop=2).fit(stripes, "it")).tolist() == [[30, 40], [30, 40]]
    assert np.asarray(Sizing(resize=2).fit(stripes, "it")).shape == (2, 2)  # stretched: of all six columns
    assert np.asarray(Sizing(resize=4, crop=4).fit(stripes, "it")).shape == (4, 4)
    assert Sizing().fit(stripes, "it") is stripes


def test_a_folder_of_mixed_sizes(tmp_path):
    for name, shade in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.new("L", (20 + number, 30 - number), shade).save(tmp_path / name / f"{number}.png")
    with pytest.raises(DataError, match="Images differ in size"):
        load(tmp_path)
    data = load(tmp_path, resize=8)
    assert data.shape == (1, 8, 8)
    assert set(data.train_inputs.ravel()) == {10, 200}
    assert load(tmp_path, crop=20).shape == (1, 20, 20)
    with pytest.raises(DataError, match=r"0\.png is 20 x 30, too small for crop = 25: set resize = 25 or more"):
        load(tmp_path, crop=25)


def test_arrays_and_named_sets_are_sized_too(tmp_path):
    images = np.zeros((4, 6, 4, 3), np.uint8)
    images[:, 2:4, 1:3] = 100, 150, 200
    labels = np.array([0, 1, 0, 1])
    np.savez(tmp_path / "own.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    data = load(tmp_path / "own.npz", crop=2)
    assert data.test_inputs.shape == (4, 3, 2, 2)
    assert data.train_inputs[0, :, 0, 0].tolist() == [100, 150, 200]
    assert data.mean == pytest.approx((100 / 255, 150 / 255, 200 / 255))
    assert load("digits", resize=28).shape == (1, 28, 28)
    with pytest.raises(DataError, match=r"own\.npz is 4 x 6, too small for crop = 5"):
        load(tmp_path / "own.npz", crop=5)
