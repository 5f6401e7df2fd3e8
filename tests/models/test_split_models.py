"""Models: their sizes, the adapter as a vector, batch norm that stays local, and one's own backbones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.models import ADAPTER, SplitModel, build_model
from refprotofl.models.inputs.image import pixels
from refprotofl.models.networks import LocalBatchNorm, cnn, mlp, norm_layer, resnet18


def experiment(shape: tuple[int, int, int] = (1, 8, 8), classes: int = 10, seed: int = 0, **model: Any) -> Experiment:
    channels = shape[0]
    seen = {
        "class-names": [str(number) for number in range(classes)], "shape": shape,
        "mean": [0.5] * channels, "std": [0.25] * channels,
    }  # fmt: skip
    return Experiment.parse({"seed": seed, "input": seen, "model": {"name": "mlp", **model}})


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# Sizes


@pytest.mark.parametrize(
    ("embedding", "classes", "size"),
    [
        (128, 10, 66_954),
        (128, 100, 78_564),
        (256, 10, 133_898),
        (256, 100, 157_028),
        (512, 10, 267_786),
        (512, 100, 313_956),
    ],
)
def test_the_adapter_behind_512_features_has_so_many_parameters(embedding: int, classes: int, size: int) -> None:
    model = SplitModel(nn.Identity(), 512, embedding, classes, pixels([0.5], [0.5]))
    assert len(model.read(ADAPTER)) == sum(model.sizes(ADAPTER)) == size
    assert model.sizes(ADAPTER) == [512 * embedding, embedding, embedding * classes, classes]


@pytest.mark.parametrize(
    ("stem", "channels", "size"),
    [("cifar", 3, 11_168_832), ("cifar", 1, 11_167_680), ("imagenet", 3, 11_176_512), ("imagenet", 1, 11_170_240)],
)
def test_resnet18_has_so_many_backbone_parameters(stem: Any, channels: int, size: int) -> None:
    backbone = resnet18(channels, stem, "group")
    assert count(backbone) == size
    assert list(backbone.buffers()) == []
    with torch.no_grad():
        assert backbone.eval()(torch.zeros(2, channels, 28, 28)).shape == (2, 512)


def test_batch_norm_adds_9600_statistics_and_20_counters_to_the_same_parameters() -> None:
    backbone = resnet18(3, "cifar", "batch-local")
    assert count(backbone) == 11_168_832
    assert sum(buffer.numel() for buffer in backbone.buffers() if buffer.is_floating_point()) == 9_600
    assert sum(buffer.numel() for buffer in backbone.buffers() if not buffer.is_floating_point()) == 20


@pytest.mark.parametrize(
    ("shape", "width"),
    [((1, 28, 28), 512), ((3, 32, 32), 512), ((1, 9, 9), 512), ((1, 8, 8), 128), ((1, 28, 8), 256), ((1, 1, 1), 128)],
)
@pytest.mark.parametrize("norm", ["group", "batch-local", "none"])
def test_the_cnn_reports_its_width(shape: tuple[int, int, int], width: int, norm: Any) -> None:
    backbone, reported = cnn(shape, norm)
    assert backbone.eval()(torch.zeros(3, *shape)).shape == (3, reported)
    assert reported == width


def test_the_mlp_by_hand() -> None:
    backbone, width = mlp((1, 8, 8), "none")
    assert width == 128
    assert count(backbone) == 64 * 256 + 256 + 256 * 128 + 128


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (512, 32), (48, 24), (7, 7), (37, 1)])
def test_group_norm_takes_the_most_groups_up_to_32_that_divide(channels: int, groups: int) -> None:
    layer = norm_layer("group", channels)
    assert isinstance(layer, nn.GroupNorm)
    assert layer.num_groups == groups


# The split


def test_the_adapter_vector_is_feature_weight_feature_bias_head_weight_head_bias_row_by_row() -> None:
    model = SplitModel(nn.Flatten(), 3, 2, 2, pixels([0.0], [1.0]))
    vector = torch.arange(14.0)
    model.write(ADAPTER, vector)
    assert model.feature.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert model.feature.bias.tolist() == [6, 7]
    assert model.head.weight.tolist() == [[8, 9], [10, 11]]
    assert model.head.bias.tolist() == [12, 13]
    assert model.read(ADAPTER).equal(vector)


def test_what_is_read_is_a_copy() -> None:
    model = build_model(experiment())
    adapter, backbone = model.read(ADAPTER), model.read_private(ADAPTER)
    model.write(ADAPTER, torch.zeros_like(adapter))
    model.write_private({name: torch.zeros_like(value) for name, value in backbone.items()})
    assert adapter.abs().sum() > 0
    assert sum(float(value.abs().sum()) for value in backbone.values()) > 0
    model.write(ADAPTER, adapter)
    model.write_private(backbone)
    assert model.read(ADAPTER).equal(adapter)
    assert all(value.equal(backbone[name]) for name, value in model.read_private(ADAPTER).items())


def test_adapter_and_backbone_are_the_whole_model_and_do_not_overlap() -> None:
    model = build_model(experiment(norm="batch-local"))
    backbone = {name for name in model.state_dict() if name.startswith("backbone.")}
    assert set(model.read_private(ADAPTER)) == backbone
    assert len(model.read(ADAPTER)) == count(model) - count(model.backbone)


def test_the_embedding_is_behind_the_features_relu_and_the_head_reads_it() -> None:
    model = SplitModel(nn.Flatten(), 2, 2, 1, pixels([0.0], [1.0]))
    model.write(ADAPTER, torch.tensor([1.0, 0, 0, 1, 0, 0, 1, 1, 0.5]))
    inputs = torch.tensor([[[[3.0, -4.0]]]])
    assert model.embed(inputs).tolist() == [[3, 0]]
    assert model(inputs).tolist() == [[3.5]]


def test_images_are_normalised_by_channel() -> None:
    model = SplitModel(nn.Flatten(), 8, 2, 2, pixels([0.5, 0.25], [0.5, 0.125]))
    images = torch.tensor([0, 255], dtype=torch.uint8).repeat_interleave(2).view(1, 2, 1, 2)
    prepared = model.prepare(images)
    assert prepared.dtype == torch.float32
    assert prepared.flatten().tolist() == pytest.approx([-1, -1, 6, 6])
    assert images.flatten().tolist() == [0, 0, 255, 255]  # not written into


# Batch norm that stays local


@pytest.mark.parametrize(("name", "shape"), [("mlp", (1, 8, 8)), ("cnn", (1, 8, 8)), ("resnet18", (1, 8, 8))])
def test_batch_local_norm_trains_on_a_batch_of_one(name: str, shape: tuple[int, int, int]) -> None:
    """A last batch of one image, down to 1 x 1 pixels: torch's own batch norm refuses it."""
    model = build_model(experiment(shape, name=name, norm="batch-local", embedding=4)).train()
    loss = model(torch.rand(1, *shape)).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert all(parameter.grad is None or torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_a_single_value_is_normalised_by_what_was_seen_before_and_leaves_no_trace() -> None:
    layer = LocalBatchNorm(3).train()
    layer(torch.randn(8, 3))
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    single = torch.randn(1, 3)
    expected = layer.eval()(single)
    assert layer.train()(single).allclose(expected)
    assert all(buffer.equal(before[name]) for name, buffer in layer.named_buffers())


def test_larger_batches_are_normalised_as_torch_does() -> None:
    ours, theirs = LocalBatchNorm(3), nn.BatchNorm2d(3)
    inputs = torch.randn(4, 3, 2, 2)
    assert ours(inputs).equal(theirs(inputs))
    assert ours.running_mean is not None
    assert theirs.running_mean is not None
    assert ours.running_mean.equal(theirs.running_mean)


# Initial weights


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    one, same, other = (build_model(experiment(seed=seed, norm="none")).state_dict() for seed in (1, 1, 2))
    assert all(one[name].equal(same[name]) for name in one)
    assert not any(one[name].equal(other[name]) for name in one)


def test_building_a_model_leaves_torchs_generator_alone_and_does_not_read_it() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = build_model(experiment())
    assert torch.rand(3).equal(expected)
    assert build_model(experiment()).read(ADAPTER).equal(one.read(ADAPTER))


# One's own backbone

OWN = """
import torch
from torch import nn

def good(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 7))

def needs_two(shape, depth):
    return nn.Flatten()

def not_a_module(shape):
    return lambda images: images

def wrong_input(shape):
    return nn.Linear(5, 5)

def picture(shape):
    return nn.Identity()

def loses_a_sample(shape):
    return nn.Flatten(0)

class Pair(nn.Module):
    def forward(self, images):
        return images, images

def pair(shape):
    return Pair()

class Whole(nn.Module):
    def forward(self, images):
        return images.flatten(1).long()

def whole(shape):
    return Whole()

value = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_backbones.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_backbones"


def test_a_backbone_of_ones_own_is_used_as_it_is(own: str) -> None:
    model = build_model(experiment((3, 2, 2), name=f"{own}:good", embedding=4))
    assert model.feature.in_features == 7
    assert model(torch.zeros(5, 3, 2, 2)).shape == (5, 10)
    again = build_model(experiment((3, 2, 2), name=f"{own}:good", embedding=4))
    assert all(value.equal(again.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("needs_two", r"own_backbones:needs_two\(\(1, 8, 8\)\) failed with TypeError: .*depth"),
        ("not_a_module", r"returned function; it must return a torch.nn.Module"),
        ("wrong_input", r"fails on images of shape \(2, 1, 8, 8\): RuntimeError"),
        ("picture", r"must map \(2, 1, 8, 8\) to \(2, width\); it returned \(2, 1, 8, 8\)"),
        ("loses_a_sample", r"must map \(2, 1, 8, 8\) to \(2, width\); it returned \(128,\)"),
        ("pair", r"must map \(2, 1, 8, 8\) to \(2, width\); it returned tuple"),
        ("whole", r"must return floating-point features; it returned torch.int64"),
        ("value", r"own_backbones:value' is not callable"),
        ("missing", r"the module 'own_backbones' has no 'missing'"),
    ],
)
def test_what_is_wrong_with_a_backbone_is_reported_before_anything_is_trained(
    own: str, name: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as refusal:
        build_model(experiment(name=f"{own}:{name}"))
    assert str(refusal.value).startswith(f"model.name = '{own}:{name}'")


def test_a_module_that_is_missing_or_broken_is_reported(own: str) -> None:
    with pytest.raises(InputError, match="module 'own_nowhere' not found"):
        build_model(experiment(name="own_nowhere:net"))
    with pytest.raises(InputError, match="importing it failed with ZeroDivisionError: division by zero"):
        build_model(experiment(name="own_broken:net"))


@pytest.mark.parametrize(
    ("name", "hint"), [("resnet-18", "did you mean 'resnet18'?"), ("vit", "known for images: resnet18, cnn, mlp.")]
)
def test_an_unknown_model_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match="is neither a known model nor module:function") as refusal:
        build_model(experiment(name=name))
    assert str(refusal.value).endswith(hint)
