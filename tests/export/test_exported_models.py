import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from refprotofl.core.errors import DataError, InputError, RunError
from refprotofl.export import class_names, export, load_exported, load_trained, onnx_graph
from refprotofl.models import build_model


def random_images(trained, count=33):
    generator = np.random.default_rng(1)
    return generator.integers(0, 256, (count, *trained.shape), dtype=np.uint8)


@torch.no_grad()
def logits(model, images):
    return model(model.prepare(torch.from_numpy(images)))


@pytest.fixture(scope="module", params=["mlp_run", "cnn_run", "local_run"])
def trained(request):
    return load_trained(request.getfixturevalue(request.param), 1)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "models" / "mine"


def test_an_exported_model_gives_the_same_logits_to_the_bit(trained, out):
    files = export(trained, out)
    assert sorted(file.name for file in files) == ["README.md", "model.safetensors"]
    assert sorted(file for file in out.iterdir()) == sorted(files)
    model, images = load_exported(out), random_images(trained)
    assert torch.equal(logits(model, images), logits(trained.model, images))
    assert not any(module.training for module in model.modules())
    assert class_names(str(out)) == trained.class_names


def test_the_same_model_gives_the_same_bytes(trained, tmp_path):
    for name in ("one", "other"):
        export(trained, tmp_path / name)
    for file in ("model.safetensors", "README.md"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_onnx_computes_the_same_for_any_batch_and_says_its_classes(trained, out, capfd):
    import onnx
    import onnxruntime

    files = export(trained, out, "onnx")
    assert capfd.readouterr() == ("", "")
    assert [file.name for file in files] == ["model.safetensors", "model.onnx", "README.md"]
    onnx.checker.check_model(str(out / "model.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == list(trained.class_names)
    for count in (1, 2, 33):
        images = random_images(trained, count)
        expected = logits(trained.model, images)
        found, probabilities = session.run(["logits", "probabilities"], {"images": images})
        assert np.allclose(found, expected, atol=1e-4)
        assert np.abs(probabilities - expected.softmax(dim=1).numpy()).max() <= 1e-5


def test_onnx_files_contain_nothing_of_this_machine(trained, out):
    export(trained, out, "onnx")
    content = (out / "model.onnx").read_bytes()
    assert b"refprotofl/" not in content
    assert b".py" not in content


@pytest.mark.parametrize("norm", ["group", "batch-local", "none"])
@pytest.mark.parametrize("name", ["resnet18", "cnn", "mlp"])
def test_every_model_and_norm_survives(mlp_run, norm, name, out):
    trained = load_trained(mlp_run, 0)
    table = trained.experiment.model.model_copy(update={"name": name, "norm": norm, "stem": "cifar"})
    experiment = trained.experiment.model_copy(update={"model": table})
    other = replace(trained, experiment=experiment, model=build_model(experiment).eval())
    with_onnx = name == "resnet18" and norm == "batch-local"  # one of them is enough: it takes seconds
    export(other, out, "onnx" if with_onnx else "safetensors")
    images = random_images(trained, 5)
    assert torch.equal(logits(load_exported(out), images), logits(other.model, images))


def test_a_graph_that_computes_something_else_is_not_exported(mlp_run, out, monkeypatch):
    trained = load_trained(mlp_run, 0)
    translate = onnx_graph._translate

    def wrong(graph, trained):
        before = graph.model.head.bias.detach().clone()
        graph.model.head.bias.data[0] += 0.01
        data = translate(graph, trained)
        graph.model.head.bias.data.copy_(before)
        return data

    monkeypatch.setattr(onnx_graph, "_translate", wrong)
    with pytest.raises(RunError, match=r"does not agree with the trained one: a probability differs by 0\.00"):
        export(trained, out, "onnx")
    assert not out.exists()


def test_a_model_that_onnx_cannot_express(mlp_run, out):
    trained = load_trained(mlp_run, 0)
    assert isinstance(trained.model.backbone, torch.nn.Sequential)
    trained.model.backbone.append(Unspeakable())
    with pytest.raises(RunError, match=r"model\.name = 'mlp' cannot be translated to ONNX: "):
        export(trained, out, "onnx")
    assert not out.exists()


class Unspeakable(torch.nn.Module):
    def forward(self, inputs):
        return torch.from_numpy(np.sort(inputs.numpy()))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_without_the_extra(mlp_run, out, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs the package {package}: .* pip install 'refprotofl\[onnx\]'"):
        export(load_trained(mlp_run, 0), out, "onnx")
    assert not out.exists()


def test_nothing_is_overwritten(mlp_run, tmp_path):
    trained = load_trained(mlp_run, 0)
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(InputError, match=r"it is not empty \(README\.md, …\); name a new folder"):
        export(trained, tmp_path)
    with pytest.raises(InputError, match="it is a file; name a new folder"):
        export(trained, tmp_path / "README.md")
    with pytest.raises(InputError, match=r"Cannot create the folder .*below"):
        export(trained, tmp_path / "README.md" / "below")
    with pytest.raises(InputError, match="Unknown export format 'pickle'"):
        export(trained, tmp_path / "new", "pickle")  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


def test_folders_that_hold_no_such_model(mlp_run, out, tmp_path):
    with pytest.raises(InputError, match=r"is not an exported model: it has no model\.safetensors"):
        load_exported(tmp_path)
    export(load_trained(mlp_run, 0), out)
    file = out / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (b"", whole[:5], whole[:-1], b"\xff" * 100):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="is truncated or damaged"):
            load_exported(out)
    file.write_bytes(safetensors.torch.save({"a": torch.zeros(1)}))
    with pytest.raises(InputError, match="was not exported by refprotofl"):
        load_exported(out)
    tensors = safetensors.torch.load(whole) | {"head.bias": torch.zeros(3)}
    description = re.search(rb'"__metadata__":\{"refprotofl":("(?:[^"\\]|\\.)*")\}', whole)
    assert description is not None
    metadata = {"refprotofl": json.loads(description[1])}
    file.write_bytes(safetensors.torch.save(tensors, metadata=metadata))
    with pytest.raises(DataError, match="do not fit the model that it describes"):
        load_exported(out)
    small = {"a": torch.zeros(1)}
    for width, reason in (
        (60_000, "describes a model of .* but holds"),
        (70_000, "is more than the maximum of 65"),
    ):
        grown = re.sub(r'"embedding": \d+', f'"embedding": {width}', metadata["refprotofl"])
        file.write_bytes(safetensors.torch.save(small, metadata={"refprotofl": grown}))
        with pytest.raises((DataError, InputError), match=reason):
            load_exported(out)
    vast = re.sub(r'"shape": \[\d+, \d+, \d+\]', '"shape": [3, 90000, 90000]', metadata["refprotofl"])
    file.write_bytes(safetensors.torch.save(small, metadata={"refprotofl": vast}))
    with pytest.raises((DataError, InputError), match="resize the images"):
        load_exported(out)
    later = metadata["refprotofl"].replace('"schema": 1', '"schema": 2')
    file.write_bytes(safetensors.torch.save(tensors, metadata={"refprotofl": later}))
    with pytest.raises(InputError, match="has schema 2; this version reads 1"):
        load_exported(out)
