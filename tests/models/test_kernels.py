"""`model.kernel = "fast"` computes what `plain` does, from the same weights in the same places."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.bench.kernels import experiment_of, measure_kernels
from refprotofl.core.state import State, digest_state
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Train
from refprotofl.federation import run
from refprotofl.federation.local_run import OpenEngine
from refprotofl.methods.base.optimisers import FreshSgd
from refprotofl.models import ADAPTER, ALL, SplitModel, build_model
from refprotofl.models.kernels import FAST, PLAIN, kernel_of
from refprotofl.models.networks import SmallMapConv2d
from refprotofl.records.state_files import load_state, save_state

pytestmark = pytest.mark.slow

Shape = tuple[int, int, int]

NORMS = ["group", "batch-local", "none"]
SHAPES: list[Shape] = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 32, 8)]
TOLERANCE = 1e-12  # of a tensor's largest value, in float64


def experiment(kernel: str, shape: Shape = (1, 28, 28), **model: Any) -> Experiment:
    seen = {
        "class-names": [str(number) for number in range(10)], "shape": shape,
        "mean": [0.5] * shape[0], "std": [0.25] * shape[0],
    }  # fmt: skip
    return Experiment.parse({"input": seen, "model": {"embedding": 16, **model, "kernel": kernel}})


def both(shape: Shape = (1, 28, 28), **model: Any) -> tuple[SplitModel, SplitModel]:
    plain, fast = (build_model(experiment(kernel, shape, **model)) for kernel in ("plain", "fast"))
    return plain, fast


def as_keys(row: tuple[str, ...]) -> dict[str, Any]:
    """A row of the table as keys of [model]."""
    return {"name": row[0], "norm": row[-1], **({"stem": row[1]} if len(row) == 3 else {})}


def draw(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_close(found: Tensor | None, expected: Tensor | None, name: str) -> None:
    assert found is not None
    assert expected is not None
    assert found.shape == expected.shape, name
    difference = float((found - expected).abs().max())
    assert difference <= TOLERANCE * max(float(expected.abs().max()), 1e-2), f"{name} differs by {difference:.1e}"


def gradients(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs, and the gradients of inputs and parameters of a sum in which every output has its own weight."""
    inputs = inputs.clone().requires_grad_()
    outputs = model(inputs)
    (outputs * draw(*outputs.shape, seed=1)).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert inputs.grad is not None
    assert all(grad is not None for grad in found)  # zero where nothing is seen, so that weight decay acts on all
    return outputs.detach(), inputs.grad, [grad for grad in found if grad is not None]


def assert_same_numbers(plain: nn.Module, fast: nn.Module, inputs: Tensor) -> None:
    expected, expected_slopes, expected_grads = gradients(plain, inputs)
    outputs, slopes, grads = gradients(fast, inputs)
    assert_close(outputs, expected, "the output")
    assert_close(slopes, expected_slopes, "the input's gradient")
    for (name, _), grad, other in zip(plain.named_parameters(), grads, expected_grads, strict=True):
        assert_close(grad, other, f"the gradient of {name}")


# The convolution


@settings(max_examples=150)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3), stride=st.integers(1, 2), kernel=st.sampled_from([1, 3, 5]),
    channels=st.tuples(*[st.integers(1, 4)] * 2), bias=st.booleans(), last=st.booleans(),
)  # fmt: skip
def test_a_small_map_convolution_is_torchs_on_every_map(
    sizes: tuple[int, int, int], stride: int, kernel: int, channels: tuple[int, int], bias: bool, last: bool
) -> None:
    batch, height, width = sizes
    plain = nn.Conv2d(*channels, kernel, stride, padding=kernel // 2, bias=bias).double()
    ours = SmallMapConv2d(*channels, kernel, stride, bias=bias).double()
    ours.load_state_dict(plain.state_dict())
    if last:
        ours.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch does not declare it
    assert_same_numbers(plain, ours, draw(batch, channels[0], height, width))


def test_on_one_pixel_only_the_centre_of_a_kernel_counts() -> None:
    layer = SmallMapConv2d(1, 1, 3, 1, bias=True)
    assert layer.bias is not None
    with torch.no_grad():
        layer.weight.copy_(torch.arange(9.0).view(1, 1, 3, 3))
        layer.bias.fill_(0.5)
    output = layer(torch.tensor([[[[2.0]]]]))
    assert output.tolist() == [[[[8.5]]]]  # 4 * 2 + 0.5
    output.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[[[0, 0, 0], [0, 2, 0], [0, 0, 0]]]]


def test_two_by_two_pixels_by_hand() -> None:
    """The top left pixel has the centre on itself, the tap to the right on its right neighbour, and so on."""
    layer = SmallMapConv2d(1, 1, 3, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(9.0).view(1, 1, 3, 3))
    pixels = torch.tensor([[[[1.0, 10.0], [100.0, 1000.0]]]])
    expected = [[4 + 50 + 700 + 8000, 3 + 40 + 600 + 7000], [1 + 20 + 400 + 5000, 0 + 10 + 300 + 4000]]
    assert layer(pixels).tolist() == [[expected]]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "ours"), [(1, 3, 1, True), (2, 3, 1, True), (2, 3, 2, True), (3, 3, 1, False),
                                           (4, 3, 2, False), (4, 1, 2, True), (5, 1, 2, False), (28, 7, 2, False)],
)  # fmt: skip
def test_only_small_maps_leave_torchs_way(
    size: int, kernel: int, stride: int, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(nn.Conv2d, "forward", lambda layer, inputs: calls.append(inputs))
    SmallMapConv2d(2, 3, kernel, stride, bias=False)(torch.zeros(1, 2, size, size))
    assert (calls == []) == ours


# Whole models


@pytest.mark.parametrize(
    ("stem", "shape"),
    [("imagenet", (1, 64, 64)), *((stem, shape) for stem in ("imagenet", "cifar") for shape in SHAPES)],
)
@pytest.mark.parametrize("norm", NORMS)
def test_resnet18_computes_the_same_with_both_kernels(norm: str, stem: str, shape: Shape) -> None:
    plain, fast = (model.double() for model in both(shape, name="resnet18", stem=stem, norm=norm))
    # Where the last maps are one pixel wide, the variance of three images can be so small that rounding errors blow up.
    narrow = min(shape[1:]) <= (32 if stem == "imagenet" else 8)
    count = 16 if norm == "batch-local" and narrow else 3
    assert_same_numbers(plain, fast, draw(count, *shape))
    with torch.no_grad():
        assert_close(fast.eval()(draw(1, *shape)), plain.eval()(draw(1, *shape)), "a single image's output")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS)
def test_the_cnn_computes_the_same_with_both_kernels(norm: str, shape: Shape) -> None:
    plain, fast = both(shape, name="cnn", norm=norm)
    assert_same_numbers(plain.double(), fast.double(), draw(3, *shape))


@pytest.mark.parametrize("row", FAST, ids=" ".join)
def test_both_kernels_start_from_the_same_weights_in_the_same_order(row: tuple[str, ...]) -> None:
    plain, fast = both(**as_keys(row))
    assert list(plain.state_dict()) == list(fast.state_dict())
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in fast.named_parameters()]
    assert plain.sizes(ALL) == fast.sizes(ALL)
    assert plain.read(ALL).equal(fast.read(ALL))
    assert digest_state(dict(plain.read_private(ADAPTER))) == digest_state(dict(fast.read_private(ADAPTER)))


@pytest.mark.parametrize("row", [row for row in FAST if FAST[row].kernel == PLAIN], ids=" ".join)
def test_where_nothing_was_faster_fast_is_plain_to_the_bit(row: tuple[str, ...]) -> None:
    plain, fast = both(**as_keys(row))
    images = draw(3, 1, 28, 28).float()
    labels = torch.tensor([1, 2, 3])
    for model in (plain, fast):
        FreshSgd(model.parameters_of(ALL), Train()).step(functional.cross_entropy(model(images), labels))
    assert plain.read(ALL).equal(fast.read(ALL))
    assert plain.eval()(images).equal(fast.eval()(images))


def test_a_backbone_of_ones_own_is_left_alone_and_plain_is_plain() -> None:
    assert kernel_of("mine:net", experiment("fast").model) == PLAIN
    assert all(kernel_of(row[0], experiment("plain", **as_keys(row)).model) == PLAIN for row in FAST)


def test_the_documented_table_is_the_one_in_use() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration" / "models.md").read_text(encoding="utf-8")
    for row, measured in FAST.items():
        name = f"`{row[0]}`, `{row[1]}` stem" if len(row) == 3 else f"`{row[0]}`"
        norm = "all" if row[0] == "mlp" else f"`{row[-1]}`"
        yes = ["yes" if on else "no" for on in (measured.kernel.products, measured.kernel.channels_last)]
        line = " | ".join([name, norm, *yes, f"{measured.training:.1f}", f"{measured.forward:.1f}"])
        assert f"| {line} |" in page


def test_the_benchmark_measures_the_rows_of_the_table() -> None:
    for row, measured in FAST.items():
        plain, fast = (experiment_of(row, (1, 8, 8), kernel) for kernel in ("plain", "fast"))
        assert kernel_of(row[0], plain.model) == PLAIN
        assert kernel_of(row[0], fast.model) == measured.kernel
    report = measure_kernels([("mlp", "none"), ("cnn", "none")], [(1, 8, 8)], repeats=1)
    assert [(row["model"], row["channels_last"]) for row in report.rows] == [("mlp none", False), ("cnn none", True)]


# Weights in another memory format


@pytest.fixture
def channels_last() -> SplitModel:
    model = build_model(experiment("fast", name="cnn", norm="none"))
    strided = [parameter for parameter in model.parameters() if not parameter.is_contiguous()]
    assert len(strided) == 2  # the first convolution has one input channel, and so both formats at once
    return model


def test_weights_are_read_and_written_row_by_row_whatever_their_memory_format(channels_last: SplitModel) -> None:
    vector = torch.arange(float(sum(channels_last.sizes(ALL))))
    channels_last.write(ALL, vector)
    assert channels_last.read(ALL).equal(vector)
    plain = build_model(experiment("plain", name="cnn", norm="none"))
    plain.write(ALL, vector)
    for name, value in plain.state_dict().items():
        assert value.equal(channels_last.state_dict()[name]), name


def test_private_states_survive_a_file_with_their_digest(channels_last: SplitModel, tmp_path: Path) -> None:
    private = channels_last.read_private(ADAPTER)
    state: State = dict(private)
    save_state(tmp_path / "state", state)
    loaded = load_state(tmp_path / "state", digest_state(state))
    assert digest_state(loaded) == digest_state(state)
    before = channels_last.read(ALL)
    channels_last.write_private({name: torch.zeros_like(value) for name, value in private.items()})
    channels_last.write_private(loaded)
    assert channels_last.read(ALL).equal(before)
    assert sum(not parameter.is_contiguous() for parameter in channels_last.parameters()) == 2


def test_the_fused_step_is_sgd_by_hand_in_either_memory_format(channels_last: SplitModel) -> None:
    table = Train(lr=0.5, momentum=0.5, weight_decay=0.25)
    parameters = channels_last.parameters_of(ALL)
    expected = [value.detach().clone() for value in parameters]
    momenta = [torch.zeros_like(value) for value in parameters]
    optimiser = FreshSgd(parameters, table)
    for step in range(3):
        images = draw(3, 1, 28, 28, seed=step).float()
        optimiser.step(channels_last(images).square().mean())
        for value, momentum, parameter in zip(expected, momenta, parameters, strict=True):
            assert parameter.grad is not None
            momentum.mul_(0.5).add_(parameter.grad + 0.25 * value)
            value.sub_(0.5 * momentum)
    for value, parameter in zip(expected, parameters, strict=True):
        torch.testing.assert_close(parameter.detach(), value, rtol=1e-5, atol=1e-6)


# Runs


def test_a_run_ends_at_the_same_digest_with_one_and_two_workers(tmp_path: Path, patient: OpenEngine) -> None:
    tiny = Experiment.parse(
        {
            "dataset": "digits", "train-limit": 80, "clients": 2, "rounds": 1, "min-size": 10,
            "public": {"per-class": 1}, "train": {"batch-size": 16, "lr": 0.001},
            "model": {"name": "resnet18", "norm": "none", "embedding": 8, "kernel": "fast"},
            "evaluate": {"test-limit": 10},
        }
    )  # fmt: skip
    one, two = (run(tiny, out=tmp_path / str(workers), workers=workers, engine=patient).summary for workers in (1, 2))
    assert one["state_digest"] == two["state_digest"]
