"""VHL: noise that all clients have in common, twice as many outputs, and the terms of the loss one by one."""

import itertools

import pytest
import torch
from torch.nn import functional

from refprotofl.core.errors import GuardError, InputError
from refprotofl.export import export as export_model
from refprotofl.export import load_exported, load_trained
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.vhl import Options
from refprotofl.methods.builtin.vhl.vhl import supcon, virtual_loss
from refprotofl.models import SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.wire.tensors import same_bits

ADAPTER = 128 * 8 + 8 + 8 * 20 + 20  # with ten more outputs


def vhl(simulated, over=None, **table):
    named = {name.replace("_", "-"): value for name, value in table.items()}
    return simulated({"method": "vhl", "vhl": {"per-class": 10, **named}, **(over or {})})


@pytest.fixture
def parts():
    """A model of 3 + 3 outputs, a natural batch with its labels, a virtual one with its own."""
    torch.manual_seed(0)
    model = SplitModel(torch.nn.Flatten(), 4, 5, 6, pixels([0.5], [0.5]))
    return (
        model,
        torch.randn(6, 1, 2, 2),
        torch.tensor([0, 1, 2, 0, 0, 1]),
        torch.randn(4, 1, 2, 2),
        torch.tensor([0, 1, 1, 2]),
    )


def loss_of(parts, aligned_steps=1, **weights):
    model, inputs, labels, virtual, paired = parts
    table = Options(**({"alpha": 0.0, "w_align": 0.0, "w_virtual": 0.0} | weights))
    return virtual_loss(model, table, itertools.repeat((virtual, paired)), 3, aligned_steps)(inputs, labels)


def test_of_weights_zero_it_is_cross_entropy_over_all_outputs(parts):
    model, inputs, labels, _, _ = parts
    total, extra = loss_of(parts)
    assert extra.item() == 0
    assert total.item() == pytest.approx(functional.cross_entropy(model(inputs), labels).item())


def test_each_weight_adds_its_own_term(parts):
    model, inputs, labels, virtual, paired = parts
    natural = functional.cross_entropy(model(inputs), labels).item()
    near = functional.normalize(model.embed(torch.cat([inputs, virtual])))
    expected = {
        "alpha": functional.cross_entropy(model(virtual), 3 + paired).item(),
        "w_align": supcon(near, torch.cat([labels, paired]), 0.07).item(),
        "w_virtual": supcon(near[6:], paired, 0.07).item(),
    }
    for weight, term in expected.items():
        assert term > 0.01
        total, extra = loss_of(parts, **{weight: 2.0})
        assert extra.item() == pytest.approx(2 * term, rel=1e-5)
        assert total.item() == pytest.approx(natural + 2 * term, rel=1e-5)


def test_alignment_moves_natural_features_and_not_virtual_ones(parts):
    _, inputs, _, virtual, _ = parts
    moving = virtual.requires_grad_(), inputs.requires_grad_()
    for weight, moves in (("w_align", False), ("w_virtual", True)):
        _, extra = loss_of(parts, **{weight: 1.0})
        towards_virtual, towards_natural = torch.autograd.grad(extra, moving, retain_graph=True)
        assert bool(towards_virtual.any()) == moves
        assert bool(towards_natural.any()) != moves


def test_alignment_ends_with_its_epochs(parts):
    model, inputs, labels, virtual, paired = parts
    table = Options(alpha=0.0)
    loss = virtual_loss(model, table, itertools.repeat((virtual, paired)), 3, aligned_steps=2)
    extras = [loss(inputs, labels)[1] for _ in range(4)]
    assert [extra is not None and extra.item() > 0 for extra in extras] == [True, True, False, False]


def test_no_epoch_with_alignment_is_a_run_without_it(simulated):
    ended, off = vhl(simulated, align_epochs=0), vhl(simulated, w_align=0.0, w_virtual=0.0)
    assert same_bits(ended.server_state()["shared"], off.server_state()["shared"])
    assert not same_bits(ended.server_state()["shared"], vhl(simulated).server_state()["shared"])


@pytest.mark.parametrize("generator", ["gaussian", "conv"])
def test_the_added_outputs_are_counted_and_no_image_crosses(simulated, generator):
    done = vhl(simulated, {"share": "adapter"}, generator=generator)
    up, down = done.communication["uplink"], done.communication["downlink"]
    assert up["parameters"] == down["parameters"] == ADAPTER * 4 * 3
    assert up["other_values"] == down["other_values"] == 0
    assert all(one.message == {} for one in done.tap.select("down", "join"))
    assert done.events("client-failed") == []


def test_with_everything_shared_there_is_one_model_that_knows_the_ten_classes(simulated):
    done = vhl(simulated, {"share": "full"})
    accuracy = done.finished.summary["accuracy"]
    assert accuracy["global"] == accuracy["personal"] is not None
    assert done.communication["uplink"]["parameters"] == (64 * 256 + 256 + 256 * 128 + 128 + ADAPTER) * 4 * 3


def test_a_handed_over_model_has_the_natural_outputs_only(simulated, tmp_path):
    done = vhl(simulated)
    trained = load_trained(done.folder, 1)
    images = trained.model.prepare(torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8))
    assert trained.model(images).shape == (5, 10)
    export_model(trained, tmp_path / "out", "safetensors")
    assert load_exported(tmp_path / "out")(images).equal(trained.model(images))


def test_a_loss_that_ignores_the_virtual_set_is_caught():
    guards.virtual_terms_counted(0.5, 1.0)
    guards.virtual_terms_counted(0.0, 0.0)
    with pytest.raises(GuardError, match="virtual set was 0"):
        guards.virtual_terms_counted(0.0, 0.1)


@pytest.mark.parametrize("table", [{"generator": "style-gan"}, {"w-align": -1.0}, {"per-class": 0}])
def test_impossible_values_are_refused_by_name(tiny, table):
    with pytest.raises(InputError, match=f"vhl.{next(iter(table))}"):
        tiny({"method": "vhl", "vhl": table})
