"""A model of each kind is exported and predicts in every form, and files of its federation are read by nodes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kinds import KINDS, MODELS, TEST, arrays, tiny_experiment

from refprotofl.core import DataError, InputError
from refprotofl.data.client_files import export_federation
from refprotofl.data.labelled_samples import load_labelled, renumbered
from refprotofl.data.reading import AS_IT_COMES
from refprotofl.data.server_data import load_server_data
from refprotofl.export import export, load_exported, load_inputs, load_trained, predict
from refprotofl.federation import run
from refprotofl.federation.resolution import prepare
from refprotofl.federation.simulation import load_federation

OTHERS = KINDS[1:]
TITLES = {"vector": "# Vector classifier", "series": "# Series classifier", "tokens": "# Text classifier"}
SIZES = {"vector": "5 features", "series": "12 steps of 2 channels", "tokens": "up to 13 tokens"}


@pytest.mark.parametrize(("kind", "pool"), [*((kind, "mean") for kind in OTHERS), ("tokens", "last")])
def test_an_exported_model_predicts_as_the_run_does(kind: str, pool: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = {"name": MODELS[kind], "norm": "none", "embedding": 8, "pool": pool}
    trained = load_trained(run(tiny_experiment(kind, tmp_path, model=model), out=tmp_path / "run").folder, 1)
    given = arrays(kind)["x_test"]
    np.save(tmp_path / "new.npy", given)
    expected = predict(trained, tmp_path / "new.npy").probabilities  # (N, C)
    assert np.array_equal(expected, predict(trained, tmp_path / f"{kind}.npz").probabilities)
    export(trained, tmp_path / "model", "onnx")
    inputs = load_inputs(tmp_path / "model", given)
    loaded = load_exported(tmp_path / "model")
    with torch.no_grad():
        assert np.array_equal(loaded(loaded.prepare(inputs)).softmax(dim=1).numpy(), expected)
    assert np.abs(by_onnx(tmp_path / "model" / "model.onnx", inputs.numpy()) - expected).max() < 1e-5
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.startswith(TITLES[kind])
    assert SIZES[kind] in card
    assert "image" not in card.lower()


def by_onnx(path: Path, inputs: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    assert (entry.name, entry.type) == ("inputs", "tensor(int64)" if inputs.dtype == np.int64 else "tensor(float)")
    found: np.ndarray = session.run(["probabilities"], {"inputs": inputs})[0]
    return found


@pytest.mark.parametrize("kind", OTHERS)
def test_files_of_a_federation_are_read_by_nodes_and_server(kind: str, tmp_path: Path) -> None:
    federation = load_federation(prepare(tiny_experiment(kind, tmp_path)), None)
    seen, data = federation.experiment.known_input, federation.data
    export_federation(data, tmp_path / "files", seen)
    deployed = tiny_experiment(kind, tmp_path, public={"dataset": str(tmp_path / "files" / "public.npz")})
    server = load_server_data(deployed, None)
    assert server.input is not None
    assert (server.input.mean, server.input.std, server.input.shape) == (seen.mean, seen.std, seen.shape)
    assert server.input.vocabulary == seen.vocabulary
    assert server.public is not None
    assert np.array_equal(server.public.inputs, data.public_inputs)
    found = load_labelled(str(tmp_path / "files" / "client-2.npz"), "data-path", None, AS_IT_COMES)
    node = renumbered(found, server.input, "client-2.npz")
    assert np.array_equal(node.inputs, data.dataset.train_inputs[data.client_indices[2]])
    assert node.test is not None
    own = np.searchsorted(data.test_indices, data.own_test_indices[2])
    assert np.array_equal(node.test.inputs, data.test_inputs[own])


def test_tokens_outside_of_the_vocabulary_survive_a_file(tmp_path: Path) -> None:
    table = {"kind": "tokens", "unit": "words", "vocabulary": 4}
    federation = load_federation(prepare(tiny_experiment("tokens", tmp_path, data=table)), None)
    rows = federation.data.client_indices[0]
    own = federation.data.dataset.train_inputs[rows]
    assert (own == 1).any()
    export_federation(federation.data, tmp_path / "files", federation.experiment.known_input)
    found = load_labelled(str(tmp_path / "files" / "client-0.npz"), "data-path", None, AS_IT_COMES)
    assert np.array_equal(renumbered(found, federation.experiment.known_input, "here").inputs, own)


def test_data_of_another_kind_or_shape_are_refused(tmp_path: Path) -> None:
    trained = load_trained(run(tiny_experiment("vector", tmp_path, rounds=1), out=tmp_path / "run").folder, 0)
    for name, array, complaint in (
        ("wide.npy", np.zeros((3, 6)), "its vectors are 6 features, but the model takes 5 features"),
        ("deep.npy", np.zeros((3, 5, 2)), r"have shape \(3, 5, 2\). Vectors are \(N, features\)"),
        ("text.npy", np.array(["a", "b"]), "must be numbers"),
        ("nan.npy", np.full((3, 5), np.nan), "row 0 has a missing value"),
    ):
        np.save(tmp_path / name, array)
        with pytest.raises((DataError, InputError), match=complaint):
            predict(trained, tmp_path / name)
    with pytest.raises(InputError, match="its samples are images, but the model takes vectors"):
        predict(trained, "digits")


def test_a_data_set_of_a_function_keeps_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts_of_mine.py").write_text(
        "from refprotofl.data import load_dataset\n\n"
        f"def made():\n    return load_dataset({str(tmp_path / 'tokens.npz')!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    direct = tiny_experiment("tokens", tmp_path)
    named = tiny_experiment("tokens", tmp_path, dataset="texts_of_mine:made")
    one, other = (load_federation(prepare(each), None).data.dataset for each in (direct, named))
    assert len(one.test_inputs) == TEST
    assert np.array_equal(one.train_inputs, other.train_inputs)
    assert one.vocabulary == other.vocabulary
