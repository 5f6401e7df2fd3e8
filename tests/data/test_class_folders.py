import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from refprotofl.core.errors import DataError
from refprotofl.data import image_files, load_dataset


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
    assert data.train_inputs.shape == (6, 1, 3, 4)
    assert data.test_inputs.shape == (4, 1, 3, 4)
    assert data.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.class_names == ("cat", "dog")
    assert set(data.train_inputs.ravel()) == {10}
    assert set(data.test_inputs.ravel()) == {99}


def test_without_them_a_fifth_of_each_class_is_held_out_by_the_seed(tmp_path):
    for name, colour in (("cat", 0), ("dog", 100)):
        for number in range(10):
            save(tmp_path / name / f"{number}.png", colour + number)
    first, again, other = (load_dataset(str(tmp_path), None, seed) for seed in (0, 0, 1))
    assert np.bincount(first.test_labels).tolist() == [2, 2]
    assert np.bincount(first.train_labels).tolist() == [8, 8]
    everything = np.concatenate([first.train_inputs, first.test_inputs])[:, 0, 0, 0]
    assert sorted(everything) == [*range(10), *range(100, 110)]
    assert np.array_equal(first.test_inputs, again.test_inputs)
    assert not np.array_equal(first.test_inputs, other.test_inputs)


def test_one_coloured_image_makes_all_rgb(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    save(tmp_path / "train" / "dog" / "0.png", (1, 2, 3), mode="RGB")
    data = load_dataset(str(tmp_path))
    assert data.train_inputs.shape == (10, 3, 3, 4)
    assert data.train_inputs[5, :, 0, 0].tolist() == [1, 2, 3]
    assert data.train_inputs[0, :, 0, 0].tolist() == [10, 10, 10]


def test_palettes_and_alpha(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    palette = Image.new("RGB", (4, 3), (200, 0, 0)).quantize(2)
    palette.save(tmp_path / "train" / "cat" / "0.png", transparency=b"\x80\xff")
    save(tmp_path / "train" / "cat" / "1.png", (0, 200, 0, 128), mode="RGBA")
    images = load_dataset(str(tmp_path)).train_inputs
    assert images[0, :, 0, 0].tolist() == [200, 0, 0]
    assert images[1, :, 0, 0].tolist() == [0, 200, 0]


def colour_16_bit(path):
    """A PNG of one pixel with 16 bits a channel, which Pillow can read but not write."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + struct.pack(">HHH", 40000, 300, 7))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda file: Image.fromarray(np.full((3, 4), 0x8000, np.uint16)).save(file), "has values from 32768 to 32768"),
        (lambda file: Image.fromarray(np.full((3, 4), 70000, np.int32)).save(file, "TIFF"), "to 70000"),
        (lambda file: Image.fromarray(np.full((3, 4), 0.5, np.float32)).save(file, "TIFF"), "values from 0.5"),
        (colour_16_bit, "has 16 bits per channel"),
        (lambda file: file.write_bytes(b"P6 1 1 65535\n" + bytes(6)), "has 16 bits per channel"),
    ],
)
def test_what_8_bits_do_not_hold_is_refused_as_in_arrays(tmp_path, write, complaint):
    fill(tmp_path)
    write(tmp_path / "cat" / "0.png")
    with pytest.raises(DataError, match=rf"cat/0\.png .*{complaint}.* Images are stored in 8 bits"):
        load_dataset(str(tmp_path))


def test_deep_images_whose_values_fit_are_read_exactly(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    Image.fromarray(np.full((3, 4), 200, np.uint16)).save(tmp_path / "train" / "cat" / "0.png")
    assert load_dataset(str(tmp_path)).train_inputs[0].tolist() == [[[200] * 4] * 3]


def test_files_that_are_no_images_are_passed_over(tmp_path):
    fill(tmp_path)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / ".hidden.png").write_text("not an image")
    (tmp_path / "README.md").write_text("about the data")
    assert len(load_dataset(str(tmp_path)).train_inputs) == 8


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
        (lambda folder: fill(folder, ("cat",)), "at least two classes"),
        (lambda folder: (fill(folder), (folder / "eel").mkdir()), "eel contains no images"),
        (lambda folder: fill(folder, each=1), "too few images"),
        (lambda folder: fill(folder / "train"), "no folder test"),
        (lambda folder: (fill(folder), save(folder / "loose.png")), r"loose\.png is next to folders"),
        (lambda folder: (fill(folder), save(folder / "cat" / "old" / "1.png")), r"old/1\.png is not directly in"),
        (lambda folder: fill(folder / "anna"), r'is not directly in its class folder .* with partition = "natural"'),
        (
            lambda folder: (fill(folder / "train"), fill(folder / "test"), save(folder / "loose.png")),
            r"loose\.png is next to folders",
        ),
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


def test_a_folder_next_to_train_and_test_is_reported(tmp_path):
    for split in ("train", "test", "val"):
        fill(tmp_path / split)
    assert load_dataset(str(tmp_path)).notes == (f"{tmp_path / 'val'} is not used: only train and test are read.",)


def test_images_that_no_memory_holds_are_reported_by_the_first(tmp_path, monkeypatch):
    fill(tmp_path)
    monkeypatch.setattr(image_files, "machine_memory", lambda: 200)
    with pytest.raises(DataError, match=r"10 images as large as .* \(4 x 3\) take 240 B, .* set resize"):
        load_dataset(str(tmp_path))


def test_a_small_file_with_a_vast_image_is_not_unpacked(tmp_path, monkeypatch):
    fill(tmp_path)
    vast = next(tmp_path.rglob("*.png"))
    Image.new("L", (400, 400)).save(vast)
    assert vast.stat().st_size < 1000
    monkeypatch.setattr(image_files, "MOST_PIXELS", 100_000)
    before = Image.MAX_IMAGE_PIXELS
    with pytest.raises(DataError, match=rf"{vast.name} cannot be read as an image \(.*160000 pixels"):
        load_dataset(str(tmp_path))
    assert before == Image.MAX_IMAGE_PIXELS
