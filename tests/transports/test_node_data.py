"""Sources of a node's images, and its test set if they come without test images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.deployments import CLIENTS, Configs, Grid, deployed, failures

from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.node_data import load_samples
from refprotofl.export import predict
from refprotofl.export.node_model import load_own
from refprotofl.records.events import read_events
from refprotofl.records.folder import read_experiment
from refprotofl.records.verify import first_difference


def given(grid: Grid, **changed: Any) -> None:
    """Client 1's node receives another experiment."""
    grid.nodes[101] = {**grid.nodes[101], **{name.replace("_", "-"): value for name, value in changed.items()}}


def as_folder(file: Path, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Writes a client's images into class folders; gives them in the order of the files' names."""
    arrays = np.load(file)
    order = np.argsort(arrays["y_train"], kind="stable")
    images, labels = arrays["x_train"][order], arrays["y_train"][order]
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.squeeze()).save(folder / str(label) / f"{number:04d}.png")
    return images, labels


def test_a_function_next_to_the_nodes_config_gives_its_images(
    grid: Grid,
    settings: Configs,
    apart: Path,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "images_of_a_node"
    (tmp_path / f"{name}.py").write_text(
        f"import numpy as np\n\ndef load():\n    return dict(np.load({str(apart / 'client-1.npz')!r}))\n"
    )
    monkeypatch.chdir(tmp_path)  # as start.sh does, in the kit
    monkeypatch.syspath_prepend(tmp_path)  # and is put back
    given(grid, data_path=f"{name}:load")
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


def test_a_folder_of_class_folders_is_the_same_as_a_file_of_its_images(
    grid: Grid, settings: Configs, apart: Path, tmp_path: Path
) -> None:
    images, labels = as_folder(apart / "client-1.npz", tmp_path / "photos")
    np.savez(tmp_path / "file.npz", x=images, y=labels)
    given(grid, data_path=str(tmp_path / "file.npz"))
    of_file = deployed(grid, settings(rounds=1), tmp_path / "of-file")
    given(grid, data_path=str(tmp_path / "photos"), store=str(tmp_path / "new-store"))
    of_folder = deployed(grid, settings(rounds=1), tmp_path / "of-folder")
    assert first_difference(of_file.folder, of_folder.folder) is None
    assert failures(of_folder.folder) == []


def test_a_node_without_test_images_is_scored_on_what_it_holds_out(
    grid: Grid, settings: Configs, apart: Path, tmp_path: Path
) -> None:
    """The server has no test set either, so `own` is all that is known."""
    for client in range(CLIENTS):
        arrays = np.load(apart / f"client-{client}.npz")
        np.savez(tmp_path / f"{client}.npz", x=arrays["x_train"], y=arrays["y_train"])
        grid.nodes[100 + client] |= {"data-path": str(tmp_path / f"{client}.npz"), "hold-out": 0.4}
    there = deployed(grid, settings(rounds=1, test__dataset=""), tmp_path / "there")
    assert there.summary["accuracy"]["personal"] is None
    (found,) = [event["per_client"]["own"] for event in read_events(there.folder) if event["event"] == "evaluation"]
    for client, own in enumerate(found):
        config = NodeConfig.read(grid.nodes[100 + client])
        held = load_samples(config, read_experiment(there.folder), client).own_test
        assert abs(len(held.labels) - 0.4 * len(np.load(config.data_path)["y"])) <= 10  # classes
        np.savez(tmp_path / "held.npz", x=held.inputs, y=held.labels, class_names=np.array(held.class_names))
        predicted = predict(load_own(config.folder), tmp_path / "held.npz").predicted
        assert own == pytest.approx(float(np.mean(predicted == held.labels)))
