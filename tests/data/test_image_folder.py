import numpy as np
import pytest
from PIL import Image

from refprotofl.data import load_dataset
from refprotofl.errors import DataError


def save(path, colour=10, size=(4, 3), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def fill(folder, classes=("cat", "dog"), each=5, **options):
    for name in classes:
        for number in range(each):
            save(folder / name / f"{number}.png", **options)


def test_train_and_test_folders(tmp_path):
    fill(tmp_path / "train", each=3)
    fill(tmp_path / "test", each=2, colour=99)
    data = load_dataset(str(tmp_path))
    assert data.train_images.shape == (6, 1, 3, 4)
    assert data.test_images.shape == (4, 1, 3, 4)
    assert data.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.class_names == ("cat", "dog")
    assert set(data.train_images.ravel()) == {10}
    assert set(data.test_images.ravel()) == {99}


def test_without_them_a_fifth_of_each_class_is_held_out_by_the_seed(tmp_path):
    for name, colour in (("cat", 0), ("dog", 100)):
        for number in range(10):
            save(tmp_path / name / f"{number}.png", colour + number)
    first, again, other = (load_dataset(str(tmp_path), None, seed) for seed in (0, 0, 1))
    assert np.bincount(first.test_labels).tolist() == [2, 2]
    assert np.bincount(first.train_labels).tolist() == [8, 8]
    everything = np.concatenate([first.train_images, first.test_images])[:, 0, 0, 0]
    assert sorted(everything) == [*range(10), *range(100, 110)]
    assert np.array_equal(first.test_images, again.test_images)
    assert not np.array_equal(first.test_images, other.test_images)


def test_one_coloured_image_makes_all_rgb(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    save(tmp_path / "train" / "dog" / "0.png", (1, 2, 3), mode="RGB")
    data = load_dataset(str(tmp_path))
    assert data.train_images.shape == (10, 3, 3, 4)
    assert data.train_images[5, :, 0, 0].tolist() == [1, 2, 3]
    assert data.train_images[0, :, 0, 0].tolist() == [10, 10, 10]


def test_deep_grey_palettes_and_alpha(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    deep = Image.fromarray(np.full((3, 4), 0x8000, np.uint16))
    deep.save(tmp_path / "train" / "cat" / "0.png")
    assert load_dataset(str(tmp_path)).train_images[0].tolist() == [[[0x80] * 4] * 3]
    palette = Image.new("RGB", (4, 3), (200, 0, 0)).quantize(2)
    palette.save(tmp_path / "train" / "cat" / "0.png", transparency=b"\x80\xff")
    save(tmp_path / "train" / "cat" / "1.png", (0, 200, 0, 128), mode="RGBA")
    images = load_dataset(str(tmp_path)).train_images
    assert images[0, :, 0, 0].tolist() == [200, 0, 0]
    assert images[1, :, 0, 0].tolist() == [0, 200, 0]


def test_files_that_are_no_images_are_passed_over(tmp_path):
    fill(tmp_path)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / ".hidden.png").write_text("not an image")
    (tmp_path / "README.md").write_text("about the data")
    assert len(load_dataset(str(tmp_path)).train_images) == 8


def test_mixed_sizes_name_two_files(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    save(tmp_path / "test" / "dog" / "3.png", size=(7, 3))
    with pytest.raises(DataError, match=r"cat/0\.png is 4 x 3, .*test/dog/3\.png is 7 x 3\. Resize"):
        load_dataset(str(tmp_path))


def test_unreadable_image_is_named(tmp_path):
    fill(tmp_path)
    file = tmp_path / "dog" / "2.png"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError, match=r"dog/2\.png cannot be read"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (lambda folder: None, "is empty or has no class folders"),
        (lambda folder: save(folder / "0.png"), "is empty or has no class folders"),
        (lambda folder: fill(folder, ("cat",)), "two classes at least"),
        (lambda folder: (fill(folder), (folder / "eel").mkdir()), "eel has no images"),
        (lambda folder: fill(folder, each=1), "too few images"),
        (lambda folder: fill(folder / "train"), "no folder test"),
        (lambda folder: fill(folder / "test"), "no folder train"),
        (
            lambda folder: (fill(folder / "train"), fill(folder / "test", ("eel",))),
            "test labels eel do not occur",
        ),
    ],
)
def test_folders_that_do_not_do(tmp_path, prepare, complaint):
    prepare(tmp_path)
    with pytest.raises(DataError, match=complaint):
        load_dataset(str(tmp_path))
