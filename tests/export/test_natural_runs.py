"""A run with natural clients: their names are in its files, and models are asked for by them."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.export import export, find_clients, load_trained, predict, predict_each, write_predictions
from refprotofl.federation import Callback, run
from refprotofl.records.folder import read_events, read_experiment

KEYS = {
    "partition": "natural",
    "rounds": 2,
    "min-size": 6,
    "resize": 6,
    "public": {"per-class": 2},
    "model": {"name": "mlp", "embedding": 8},
    "evaluate": {"every": 1},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clients with images of mixed sizes, of whom one has too few."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    for client, each in (("anna", 20), ("ben", 15), ("eve", 2)):
        for name, shade in (("cat", 40), ("dog", 200)):
            (folder / client / name).mkdir(parents=True)
            for number in range(each):
                Image.new("L", (5 + number % 4, 7), shade + number).save(folder / client / name / f"{number}.png")
    return folder


class Notes(Callback):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def on_note(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture(scope="module")
def notes() -> Notes:
    return Notes()


@pytest.fixture(scope="module")
def natural_run(photos: Path, notes: Notes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "it"
    return run(Experiment.parse({**KEYS, "dataset": str(photos)}), out=out, callback=notes).folder


def test_the_stored_run_knows_its_clients(natural_run: Path, notes: Notes) -> None:
    experiment = read_experiment(natural_run)
    assert experiment.known_input.client_names == ("anna", "ben")
    assert experiment.clients == 2
    assert experiment.known_input.shape == (1, 6, 6)
    summary = json.loads((natural_run / "summary.json").read_text())
    assert summary["experiment"]["input"]["client-names"] == ["anna", "ben"]
    assert len(summary["accuracy_per_client"]["own"]) == 2
    start = read_events(natural_run)[0]
    assert list(start["partition"]["left_out"]) == ["eve"]
    assert [sentence for sentence in notes.sentences if "left out" in sentence and "eve" in sentence]


def test_it_resumes_with_the_same_names_and_gives_the_same_with_workers(
    natural_run: Path, photos: Path, tmp_path: Path, patient: object
) -> None:
    experiment = Experiment.parse({**KEYS, "dataset": str(photos)})
    copy = shutil.copytree(natural_run, tmp_path / "copy")
    digest = json.loads((natural_run / "summary.json").read_text())["state_digest"]
    assert run(experiment, out=copy, resume=True).summary["state_digest"] == digest
    stored = Experiment.parse(read_experiment(natural_run).plain())
    assert run(stored, out=copy, resume=True).summary["state_digest"] == digest
    assert run(experiment, out=tmp_path / "two", workers=2, engine=patient).summary["state_digest"] == digest  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"another experiment; it differs in clients, input\.client-names, partition"):
        run(Experiment.parse({**KEYS, "dataset": str(photos), "partition": "iid"}), out=copy, resume=True)


def test_a_run_with_drawn_clients_is_another_experiment(mlp_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(mlp_run, tmp_path / "copy")
    keys = {**KEYS, "dataset": "digits", "model": {"name": {"mlp": 3}}}
    with pytest.raises(InputError, match=r"another experiment; it differs in .*partition"):
        run(Experiment.parse(keys), out=copy, resume=True)


def test_too_many_evaluated_clients_are_reported_once_the_clients_are_known(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has evaluate\.clients = 3, but there are only clients = 2"):
        run(Experiment.parse({**KEYS, "dataset": str(photos), "evaluate": {"clients": 3}}), out=tmp_path / "run")


def test_clients_are_found_by_name_number_and_all(natural_run: Path, mlp_run: Path) -> None:
    assert find_clients(natural_run, "ben") == find_clients(natural_run, "1") == [1]
    assert find_clients(natural_run, "all") == [0, 1]
    assert find_clients(mlp_run, "2") == [2]
    with pytest.raises(InputError, match=r"There is no client eve in .*\. Its clients are 0 to 1, called anna, ben"):
        find_clients(natural_run, "eve")
    with pytest.raises(InputError, match=r"There is no client 3 in .*\. Its clients are 0 to 2\."):
        find_clients(mlp_run, "3")


def test_predictions_of_all_clients_say_whose_they_are(natural_run: Path, photos: Path) -> None:
    made = predict_each(natural_run, [0, 1], photos)
    expected = json.loads((natural_run / "summary.json").read_text())["accuracy_per_client"]["personal"]
    assert [one.accuracy for one in made] == expected
    assert made[1].predicted.tolist() == predict(load_trained(natural_run, 1), photos).predicted.tolist()
    header, *rows = csv.reader(io.StringIO(write_predictions(made, "csv")))
    assert header[:3] == ["client", "name", "class"]
    assert [row[0] for row in rows] == ["anna"] * len(made[0].names) + ["ben"] * len(made[1].names)
    read = json.loads(write_predictions(made, "json"))
    assert read["accuracy_per_client"] == dict(zip(("anna", "ben"), expected, strict=True))
    assert read["accuracy"] == pytest.approx(np.mean(expected))
    assert [row["client"] for row in read["rows"]] == [row[0] for row in rows]
    assert np.sum(read["confusion"]) == len(rows)
    right = sum(row["class"] == name for row, name in zip(read["rows"], _true_names(made), strict=True))
    assert np.trace(read["confusion"]) == right


def _true_names(made) -> list[str]:
    return [one.class_names[label] for one in made for label in one.labels]


def test_images_of_any_size_are_brought_to_the_runs(natural_run: Path, tmp_path: Path) -> None:
    trained = load_trained(natural_run, 0)
    Image.new("L", (300, 90), 45).save(tmp_path / "large.png")
    np.save(tmp_path / "small.npy", np.full((1, 3, 2), 45, np.uint8))
    one, other = (predict(trained, tmp_path / name).probabilities for name in ("large.png", "small.npy"))
    assert np.array_equal(one, other)
    (tmp_path / "visit" / "anna" / "cat").mkdir(parents=True)
    (tmp_path / "large.png").rename(tmp_path / "visit" / "anna" / "cat" / "1.png")
    labels = predict(trained, tmp_path / "visit").labels
    assert labels is not None
    assert labels.tolist() == [0]


def test_the_card_names_the_client_and_the_size(natural_run: Path, mlp_run: Path, tmp_path: Path) -> None:
    export(load_trained(natural_run, 1), tmp_path / "named")
    card = (tmp_path / "named" / "README.md").read_text()
    assert card.startswith("# Image classifier of client 1, ben\n")
    assert "6 x 6 with 1 channel, 0..255; normalised by the model; resized by `resize = 6` |" in card
    assert "natural over 2 clients" in card
    export(load_trained(mlp_run, 1), tmp_path / "plain")
    assert (tmp_path / "plain" / "README.md").read_text().startswith("# Image classifier of client 1\n")


def test_a_class_wise_report_of_one_client(mlp_run: Path) -> None:
    made = predict(load_trained(mlp_run, 0), "digits")
    read = json.loads(write_predictions(made, "json"))
    assert np.trace(read["confusion"]) / np.sum(read["confusion"]) == made.accuracy
    assert list(read["accuracy_per_class"]) == list(map(str, range(10)))
    assert all(share is not None for share in read["accuracy_per_class"].values())
