import csv
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import load_dataset
from refprotofl.export import load_trained, predict, write_predictions


@pytest.fixture(scope="module")
def trained(mlp_run):
    return load_trained(mlp_run, 0)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def colour(make_run, tmp_path_factory):
    """The model of a run on 6 x 5 colour images of cats and dogs, and the folder with them."""
    folder = tmp_path_factory.mktemp("pets")
    for split, each in (("train", 40), ("test", 4)):
        for name, shade in (("cat", (200, 50, 50)), ("dog", (20, 50, 220))):
            (folder / split / name).mkdir(parents=True)
            for number in range(each):
                tone = (shade[0], shade[1], shade[2] - number)
                Image.new("RGB", (6, 5), tone).save(folder / split / name / f"{number}.png")
    return load_trained(make_run(dataset=str(folder)), 0), folder


@pytest.mark.parametrize("kind", ["mlp_run", "cnn_run", "local_run"])
def test_the_test_split_gives_the_accuracy_of_the_summary_exactly(request, kind):
    folder = request.getfixturevalue(kind)
    expected = json.loads((folder / "summary.json").read_text())["accuracy_per_client"]["personal"]
    assert [predict(load_trained(folder, client), "digits").accuracy for client in range(3)] == expected


def test_probabilities_sum_to_one_and_the_class_is_the_likeliest(trained, digits):
    made = predict(trained, "digits")
    assert made.probabilities.shape == (len(digits.test_labels), 10)
    assert np.allclose(made.probabilities.sum(axis=1), 1, atol=1e-6)
    assert np.array_equal(made.predicted, made.probabilities.argmax(axis=1))


def test_array_files_give_what_the_data_set_gives(trained, digits, tmp_path):
    images = digits.test_inputs[:20]
    np.save(tmp_path / "plain.npy", images[:, 0])
    np.savez(tmp_path / "x.npz", x=images, x_test=images[:1], notes=np.arange(3))
    np.savez(tmp_path / "test.npz", x_test=images, other=np.arange(3))
    np.savez(tmp_path / "single.npz", pictures=images.transpose(0, 2, 3, 1))
    np.savez(tmp_path / "floats.npz", x=(images / 255).astype(np.float32))
    expected = predict(trained, "digits").probabilities[:20]
    for file in tmp_path.iterdir():
        made = predict(trained, file)
        assert np.allclose(made.probabilities, expected, atol=1e-6), file
        assert list(made.names) == list(range(20))
        assert made.accuracy is None


def test_a_whole_data_set_in_an_npz_is_asked_for_its_test_split(trained, digits, tmp_path):
    train, test = digits.train_labels < 4, digits.test_labels < 4
    np.savez(
        tmp_path / "four.npz",
        x_train=digits.train_inputs[train],
        y_train=9 - digits.train_labels[train],  # called 6 to 9, so nearly all is wrong
        x_test=digits.test_inputs[test],
        y_test=9 - digits.test_labels[test],
    )
    made = predict(trained, str(tmp_path / "four.npz"))
    assert made.labels is not None
    assert made.labels.tolist() == (9 - digits.test_labels[test]).tolist()
    assert made.accuracy == np.mean(made.predicted == 9 - digits.test_labels[test])


def test_image_files_keep_their_names_and_turn_grey(trained, digits, tmp_path):
    for number in range(4):
        grey = Image.fromarray(digits.test_inputs[number, 0])
        grey.convert("RGB" if number % 2 else "L").save(tmp_path / f"photo {number}.png")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    made = predict(trained, tmp_path)
    assert made.names == [f"photo {number}.png" for number in range(4)]
    assert np.allclose(made.probabilities, predict(trained, "digits").probabilities[:4], atol=1e-6)
    assert made.accuracy is None
    single = predict(trained, tmp_path / "photo 3.png")
    assert single.names == ("photo 3.png",)
    assert np.allclose(single.probabilities, made.probabilities[3:], atol=1e-6)


def test_sub_folders_named_like_classes_are_labels(trained, digits, tmp_path):
    for number in range(12):
        name = f"{digits.test_labels[number]}/{number}.png"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(digits.test_inputs[number, 0]).save(tmp_path / name)
    made = predict(trained, tmp_path)
    assert sorted(made.names) == sorted(f"{digits.test_labels[number]}/{number}.png" for number in range(12))
    assert made.accuracy == np.mean(predict(trained, "digits").predicted[:12] == digits.test_labels[:12])
    (tmp_path / "3").rename(tmp_path / "three")
    assert predict(trained, tmp_path).accuracy is None


def test_a_model_of_colours(colour, tmp_path):
    trained, folder = colour
    expected = json.loads((trained.folder / "summary.json").read_text())["accuracy_per_client"]["personal"][0]
    made = predict(trained, folder)
    assert len(made.names) == 8  # its test split
    assert made.accuracy == expected
    assert predict(trained, folder / "test").accuracy == expected
    Image.new("L", (6, 5), 100).save(tmp_path / "grey.png")
    np.save(tmp_path / "same.npy", np.full((1, 3, 5, 6), 100, np.uint8))
    one, other = (predict(trained, tmp_path / name).probabilities for name in ("grey.png", "same.npy"))
    assert np.array_equal(one, other)


def test_a_folder_that_the_run_split_itself_is_never_asked_for_its_training_part(make_run, colour, tmp_path):
    whole = shutil.copytree(colour[1] / "train", tmp_path / "whole")
    trained = load_trained(make_run(dataset=str(whole)), 0)
    expected = json.loads((trained.folder / "summary.json").read_text())["accuracy_per_client"]["personal"][0]
    made = predict(trained, whole)
    assert len(made.names) == 16  # a fifth of 80
    assert made.accuracy == expected


def test_csv_reads_back(trained, tmp_path):
    made = predict(trained, "digits")
    text = write_predictions(made, "csv", tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == text
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["name", "class", "probability", *(f"p({digit})" for digit in range(10))]
    assert [row[0] for row in rows] == [str(number) for number in range(len(made.names))]
    assert [row[1] for row in rows] == [str(digit) for digit in made.predicted]
    assert np.array_equal(np.array([row[3:] for row in rows], dtype=np.float32), made.probabilities)
    assert all(row[2] == row[3 + int(row[1])] for row in rows)


def test_json_reads_back(trained, tmp_path):
    made = predict(trained, "digits")
    read = json.loads(write_predictions(made, "json", tmp_path / "table.json"))
    assert json.loads((tmp_path / "table.json").read_text()) == read
    assert read["accuracy"] == made.accuracy
    assert [int(row["class"]) for row in read["rows"]] == made.predicted.tolist()
    shares = np.array([list(row["probabilities"].values()) for row in read["rows"]], dtype=np.float32)
    assert np.array_equal(shares, made.probabilities)


def test_tables_that_cannot_be_written(trained, tmp_path):
    made = predict(trained, "digits")
    with pytest.raises(InputError, match=r"Unknown table format 'xlsx'\. Use csv or json"):
        write_predictions(made, "xlsx")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"nowhere not found"):
        write_predictions(made, "csv", tmp_path / "nowhere" / "table.csv")
    with pytest.raises(InputError, match="it is a folder"):
        write_predictions(made, "csv", tmp_path)


def save_image(path, size=(8, 8)):
    Image.new("L", size, 7).save(path)


@pytest.mark.parametrize(
    ("name", "prepare", "error", "complaint"),
    [
        ("none.npy", lambda path: None, InputError, r"Path not found: .*none\.npy"),
        ("none.png", lambda path: None, InputError, r"Path not found: .*none\.png"),
        ("a/b", lambda path: None, InputError, "path not found in"),
        (
            "a.txt",
            lambda path: path.write_text("x"),
            InputError,
            r"this type are not supported\. Give a \.npz",
        ),
        ("a", lambda path: path.mkdir(), InputError, "a contains no images"),
        ("a.png", lambda path: path.write_bytes(b"x"), DataError, r"a\.png cannot be read as an image"),
        ("a.npz", lambda path: path.write_bytes(b"x"), DataError, r"a\.npz cannot be read as a numeric array"),
        ("a.npy", lambda path: np.save(path, np.array([{}])), DataError, "Python objects"),
        ("a.npy", lambda path: np.save(path, np.zeros((0, 8, 8))), InputError, "contains no images"),
        ("a.npy", lambda path: np.save(path, np.array(["x"])), DataError, "type <U1"),
        ("a.npy", lambda path: np.save(path, np.full((1, 8, 8), 300)), DataError, "must be in 0..255"),
        ("a.npy", lambda path: np.save(path, np.zeros((8, 8), "u1")), DataError, r"shape \(8, 8\)"),
        (
            "a.npy",
            lambda path: np.save(path, np.zeros((2, 28, 20), "u1")),
            InputError,
            r"a\.npy: its images are 20 x 28 with 1 channel, but the model takes 8 x 8 with 1 channel",
        ),
        ("a.npy", lambda path: np.save(path, np.zeros((2, 3, 8, 8), "u1")), InputError, "its images are .* 3 channels"),
        ("a.npz", lambda path: np.savez(path, a=1, b=2), InputError, "holds a, b; the images must be called x"),
        ("a.png", lambda path: save_image(path, (9, 8)), InputError, r"a\.png: its images are 9 x 8 with 1 channel"),
        (
            "a",
            lambda path: (path.mkdir(), save_image(path / "0.png"), save_image(path / "1.png", (8, 7))),
            InputError,
            r"1\.png: its images are 8 x 7 .* but the model takes 8 x 8",
        ),
    ],
)
def test_sources_that_do_not_do(trained, tmp_path, name, prepare, error, complaint):
    prepare(tmp_path / name)
    with pytest.raises(error, match=complaint):
        predict(trained, tmp_path / name)


def test_unknown_names_and_classes(trained, digits, colour, tmp_path):
    with pytest.raises(InputError, match="Did you mean 'digits'"):
        predict(trained, "digit")
    words = np.array(["zero", "one", *"23456789"])
    splits = {f"x_{part}": getattr(digits, f"{part}_inputs") for part in ("train", "test")}
    splits |= {f"y_{part}": words[getattr(digits, f"{part}_labels")] for part in ("train", "test")}
    np.savez(tmp_path / "words.npz", **splits)
    with pytest.raises(InputError, match="has a class 'one' that is unknown to the model; its classes are 0, 1"):
        predict(trained, tmp_path / "words.npz")
    with pytest.raises(InputError, match=r"its images are 8 x 8 .* but the model takes 6 x 5 with 3 channels"):
        predict(colour[0], "digits")
