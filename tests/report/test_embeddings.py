"""Finished runs' test embeddings: which images, whose model, which anchors, how well apart, and their picture."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.tiny import tiny_keys

from refprotofl.core.errors import InputError
from refprotofl.data import load_dataset
from refprotofl.experiment import Experiment
from refprotofl.export import load_trained
from refprotofl.federation import run
from refprotofl.methods.base.training import embed
from refprotofl.report.pictures.embedding import COLOURS, MARKERS, Embedded, draw_embeddings, embed_run, map_of

TINY = tiny_keys(clients=3)
RUNS: dict[str, dict[str, str | int]] = {
    "refprotofl": {},
    "local": {"method": "local", "seed": 3},
    "fedavg": {"method": "fedavg", "share": "full", "seed": 1},
    "fedproc": {"method": "fedproc", "share": "full"},
    "fedprotokd": {"method": "fedprotokd"},
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in made:
            made[name] = run(Experiment.parse({**TINY, **RUNS[name]}), out=tmp_path_factory.mktemp(name)).folder
        return made[name]

    return folder_of


@pytest.fixture(scope="module")
def ours(folder_of) -> Embedded:
    return embed_run(folder_of("refprotofl"), images=60)


def four_points(**changes) -> Embedded:
    points = np.array([[0, 0], [0, 1], [3, 0], [3, 1]], np.float32)
    none = np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
    return replace(Embedded("toy", points, np.array([0, 0, 1, 1]), ("a", "b"), *none, "toy"), **changes)


def test_the_silhouette_of_four_points_by_hand():
    """Each is 1 from its own and 3 and the root of 10 from the others: 1 - 1 / mean(3, sqrt(10)) for all four."""
    assert four_points().silhouette == pytest.approx(1 - 2 / (3 + np.sqrt(10)), abs=1e-6)


def test_anchors_do_not_change_the_silhouette():
    with_anchors = four_points(anchors=np.full((2, 2), 9, np.float32), anchor_classes=np.array([0, 1]))
    assert with_anchors.silhouette == four_points().silhouette


def test_other_methods_and_seeds_show_the_same_images_six_of_each_class(folder_of, ours):
    for name in ("local", "fedavg"):
        other = embed_run(folder_of(name), images=60)
        assert other.samples == ours.samples
        assert np.array_equal(other.labels, ours.labels)
        assert not np.array_equal(other.embeddings, ours.embeddings)
    assert np.bincount(ours.labels).tolist() == [6] * 10
    assert embed_run(folder_of("local"), images=50).samples != ours.samples


def test_all_test_images_if_there_are_fewer_as_client_0_embeds_them(folder_of):
    images = torch.from_numpy(load_dataset("digits").test_inputs)
    found = embed_run(folder_of("local"))
    expected = embed(load_trained(folder_of("local"), 0).model, images).numpy()
    assert found.model == "client 0"
    assert np.array_equal(found.embeddings, expected)


def test_the_global_model_is_shown_where_there_is_one(folder_of):
    """FedAvg's model is that of all clients; FedProtoKD's server has one that is no client's."""
    for name, is_the_clients in (("fedavg", True), ("fedprotokd", False)):
        found = embed_run(folder_of(name), images=60)
        images = load_dataset("digits").test_inputs
        own = embed(load_trained(folder_of(name), 0).model, torch.from_numpy(images)).numpy()
        assert found.model == "global model"
        assert bool((found.embeddings[:, None] == own[None]).all(axis=2).any(axis=1).all()) is is_the_clients


def test_anchors_are_there_for_refprotofl_and_not_for_local(folder_of, ours):
    assert ours.model == "client 0"
    assert ours.anchor_classes.tolist() == list(range(10))
    assert ours.anchors.shape == (10, 8)
    assert embed_run(folder_of("local"), images=60).anchors.shape == (0, 8)


def test_anchors_that_are_directions_are_put_where_the_embeddings_are(folder_of):
    found = embed_run(folder_of("fedproc"), images=60)
    length = np.linalg.norm(found.embeddings, axis=1).mean()
    assert length != pytest.approx(1, rel=0.1)
    assert np.linalg.norm(found.anchors, axis=1) == pytest.approx(np.full(len(found.anchors), length), rel=1e-4)


def test_too_few_images_are_refused(folder_of):
    with pytest.raises(InputError, match="images = 10: a silhouette needs two classes and more images"):
        embed_run(folder_of("local"), images=10)


def test_code_named_by_a_folder_is_not_imported(tmp_path, monkeypatch):
    """Not that of the data either, which a client's model alone would not need."""
    monkeypatch.syspath_prepend(tmp_path)
    source = "from refprotofl.data import load_dataset\n\n\ndef make():\n    return load_dataset('digits')\n"
    (tmp_path / "their_digits.py").write_text(source)
    folder = run(Experiment.parse({**TINY, "dataset": "their_digits:make"}), out=tmp_path / "run").folder
    with pytest.raises(InputError, match=r"dataset = 'their_digits:make'.*--trust-code"):
        embed_run(folder, images=60)
    assert embed_run(folder, images=60, trust_code=True).labels.shape == (60,)


def test_the_map_has_images_and_anchors_and_repeats_bit_by_bit(ours):
    images, anchors = map_of(ours)
    assert (images.shape, anchors.shape) == ((60, 2), (10, 2))
    again = map_of(ours)
    assert images.tobytes() == again[0].tobytes()
    assert anchors.tobytes() == again[1].tobytes()


def test_a_model_that_died_has_a_map_too():
    dead = four_points(embeddings=np.zeros((4, 2), np.float32))
    assert np.array_equal(map_of(dead)[0], np.zeros((4, 2)))
    assert dead.silhouette == 0


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_same_embeddings_give_the_same_file(tmp_path, ours, folder_of, suffix):
    files = [tmp_path / f"{number}{suffix}" for number in range(2)]
    panels = {"RefProtoFL": ours, "local": embed_run(folder_of("local"), images=60)}
    for file in files:
        note = draw_embeddings(panels, file)
        assert note.startswith(f"{file}: t-SNE of the embeddings of 60 test samples, the same for every model.")
        assert "Silhouettes are of the embeddings (Euclidean), not of the maps." in note
    assert files[0].read_bytes() == files[1].read_bytes()


def test_titles_name_method_model_and_silhouette(tmp_path, ours):
    draw_embeddings({"RefProtoFL": ours}, tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    for shown in ("RefProtoFL", f"client 0, silhouette {ours.silhouette:.3f}", "anchor (some may overlap)"):
        assert f"<!-- {shown} -->" in text


def test_a_hundred_classes_differ_by_colour_and_shape(tmp_path):
    labels = np.repeat(np.arange(100), 2)
    points = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    names = tuple(map(str, range(100)))
    none = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    draw_embeddings({"toy": Embedded("toy", points, labels, names, *none, "")}, tmp_path / "p.png")
    found = {tuple(pixel) for pixel in np.asarray(Image.open(tmp_path / "p.png").convert("RGB")).reshape(-1, 3)}
    assert {tuple(bytes.fromhex(colour[1:])) for colour in COLOURS} <= found
    assert len({(colour, marker) for colour in COLOURS for marker in MARKERS}) == 100


def test_other_images_and_other_suffixes_are_refused(tmp_path):
    with pytest.raises(InputError, match="of the same samples"):
        draw_embeddings({"a": four_points(), "b": four_points(samples="other")}, tmp_path / "p.png")
    with pytest.raises(InputError, match=r"\.png, \.pdf, \.svg"):
        draw_embeddings({"a": four_points()}, tmp_path / "p.gif")
