"""Clients with different backbones in one federation. On 8 x 8 digits cnn and mlp are both 128 wide."""

import json

import pytest
import torch

from refprotofl.cli.verify import verify
from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.export import export, load_exported, load_trained, predict
from refprotofl.federation import Callback, run
from refprotofl.models import build_model

pytestmark = pytest.mark.slow

MIX = {"cnn": 1, "mlp": 3}


def named(name, **changes):
    return Experiment.parse({"clients": 4, "model": {"name": name}, **changes})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mlp", "mlp mlp mlp mlp"),
        (["mlp"], "mlp mlp mlp mlp"),
        (["cnn", "mlp"], "cnn mlp cnn mlp"),
        (["cnn", "mlp", "resnet18"], "cnn mlp resnet18 cnn"),
        ({"cnn": 1, "mlp": 3}, "cnn mlp mlp mlp"),
        ({"mlp": 3, "cnn": 1}, "mlp mlp mlp cnn"),
    ],
)
def test_which_client_has_which_backbone(name, expected):
    experiment = named(name)
    assert experiment.backbones == tuple(expected.split())
    again = Experiment.parse(json.loads(json.dumps(experiment.plain())))
    assert again.backbones == experiment.backbones
    assert again.hash == experiment.hash


def test_the_order_of_a_table_is_part_of_the_experiment():
    assert named({"cnn": 1, "mlp": 3}).hash != named({"mlp": 3, "cnn": 1}).hash
    assert named({"cnn": 1, "mlp": 3}).hash == named(["cnn", "mlp", "mlp", "mlp"]).hash


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ({"cnn": 1, "mlp": 2}, "has model.name for 3 clients, but clients = 4"),
        ({"cnn": 0, "mlp": 4}, "model.name = .* does not give each name a whole number of clients, 1 or more"),
        ({"cnn": "4"}, "does not give each name a whole number"),
        ({}, "does not give each name"),
        (["cnn"] * 5, "has 5 names in model.name, but there are only clients = 4"),
        ([], r"model.name = \[\] is not a list of names"),
        (["cnn", 3], "is not a list of names"),
        (3, "model.name = 3 is neither a name, nor a list of names, nor a table of counts; allowed: resnet18, cnn"),
    ],
)
def test_what_cannot_be_assigned_is_reported(name, problem):
    with pytest.raises(InputError, match=problem):
        named(name)


def test_an_unknown_name_in_a_list_gets_a_hint(simulate):
    with pytest.raises(InputError, match=r"model.name = 'mpl' is neither .* did you mean 'mlp'"):
        simulate({"model": {"name": ["cnn", "mpl"]}})


@pytest.mark.parametrize(
    ("over", "shown"),
    [
        ({"method": "fedavg", "share": "full"}, "method = 'fedavg' with share = \"full\" shares the backbone"),
        ({"method": "fedper"}, "method = 'fedper' shares the backbone, .* not cnn, mlp"),
    ],
)
def test_a_shared_backbone_is_one_and_the_same(simulate, over, shown):
    with pytest.raises(InputError, match=shown):
        simulate({"model": {"name": MIX}, **over})


def test_a_shared_feature_layer_needs_equal_widths(simulate):
    with pytest.raises(InputError, match="same width; on these images they have: mlp 128, resnet18 512"):
        simulate({"model": {"name": {"mlp": 3, "resnet18": 1}}, "method": "lg-fedavg"})


def test_initial_weights_do_not_depend_on_the_mix(simulated):
    mixed, alone = simulated({"model": {"name": MIX}}).resolved, simulated().resolved
    for name, value in build_model(alone).state_dict().items():
        assert torch.equal(build_model(mixed, client=3).state_dict()[name], value)


def test_a_list_of_one_is_that_one(simulated):
    one, alone = simulated({"model": {"name": ["mlp"]}}), simulated()
    assert one.finished.summary["state_digest"] == alone.finished.summary["state_digest"]


@pytest.mark.parametrize("method", ["refprotofl", "lg-fedavg", "local"])
def test_each_client_trains_its_own(simulated, method):
    mixed = simulated({"model": {"name": MIX}, "method": method})
    assert "backbone.0.weight" in mixed.client_state(0)  # the cnn begins with a convolution
    assert all("backbone.0.weight" not in mixed.client_state(client) for client in (1, 2, 3))  # the mlp with a Flatten
    initial = [build_model(mixed.resolved, client=client) for client in range(4)]
    for client, model in enumerate(initial):
        after = mixed.client_state(client)
        assert any(not torch.equal(after[name], value) for name, value in model.state_dict().items() if name in after)
    assert not mixed.events("client-failed")


def test_the_result_does_not_depend_on_workers(simulated, simulate):
    over = {"model": {"name": MIX}}
    assert (
        simulate(over, workers=2).finished.summary["state_digest"] == simulated(over).finished.summary["state_digest"]
    )


def test_verified_also_where_clients_never_trained(simulate):
    partial = simulate({"model": {"name": MIX}, "fraction": 0.25, "rounds": 1, "evaluate": {"every": 1}})
    trained = partial.checkpoint().records
    assert len(trained) == 1
    verify(partial.folder)
    for client in range(4):
        if client not in trained:
            model = load_trained(partial.folder, client).model
            initial = build_model(partial.resolved, client=client)
            assert torch.equal(model.read(("backbone",)), initial.read(("backbone",)))


class CutOff(Callback):
    def on_round(self, event, accuracy):
        raise KeyboardInterrupt


def test_a_run_that_was_cut_off_resumes(simulated, tiny, tmp_path):
    experiment = tiny({"model": {"name": MIX}})
    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path / "run", callback=CutOff())
    finished = run(experiment, out=tmp_path / "run", resume=True)
    undisturbed = simulated({"model": {"name": MIX}}).finished
    assert finished.summary["state_digest"] == undisturbed.summary["state_digest"]
    verify(tmp_path / "run", undisturbed.folder)


@pytest.mark.parametrize(("client", "name"), [(0, "cnn"), (1, "mlp")])
def test_every_clients_model_can_be_used_and_taken_away(simulated, tmp_path, client, name):
    mixed = simulated({"model": {"name": MIX}, "evaluate": {"every": 3, "test-limit": 0}})
    trained = load_trained(mixed.folder, client)
    assert trained.backbone == name
    recorded = mixed.finished.summary["accuracy_per_client"]["personal"][client]
    assert predict(trained, "digits").accuracy == recorded
    export(trained, tmp_path / "model")
    model = load_exported(tmp_path / "model")
    for key, value in trained.model.state_dict().items():
        assert torch.equal(model.state_dict()[key], value)
    assert f"(`{name}`, norm `none`)" in (tmp_path / "model" / "README.md").read_text()


def test_the_comparison_with_whole_models_takes_their_mean_size(simulated):
    mixed = simulated({"model": {"name": MIX}})
    sizes = [sum(p.numel() for p in build_model(mixed.resolved, client=client).parameters()) for client in range(4)]
    assert sizes[0] != sizes[1]
    assert mixed.finished.summary["full_model"]["parameters"] == round(sum(sizes) / 4)
