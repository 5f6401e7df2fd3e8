"""FedDF and FedMD: distillation by hand, what crosses, and what is refused."""

import math
from typing import Any

import pytest
import torch

from refprotofl.core import ALL
from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation.models import model_of
from refprotofl.federation.resolution import prepare
from refprotofl.methods import classify, embed
from refprotofl.methods.builtin.feddf.feddf import divergence
from refprotofl.wire.tensors import same_bits

IMAGES, CLASSES = 20, 10


def values(simulation: Any, direction: str) -> dict[str, int]:
    names = ("parameters", "prototype_values", "other_values")
    return {name: simulation.communication[direction][name] for name in names}


def test_the_divergence_by_hand() -> None:
    """Teacher (1/2, 1/2), student (3/4, 1/4)."""
    teacher, student = torch.tensor([[1.0, 1.0]]), torch.tensor([[math.log(3.0), 0.0]])
    by_hand = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert divergence(student, teacher, 1.0).item() == pytest.approx(by_hand, rel=1e-5)
    assert divergence(2 * student, 2 * teacher, 2.0).item() == pytest.approx(4 * by_hand, rel=1e-5)
    assert divergence(teacher + 3, teacher, 1.0).item() == pytest.approx(0, abs=1e-6)


def test_feddf_moves_the_mean_model_towards_the_ensemble(simulated: Any) -> None:
    """Clients do as in FedAvg; the result predicts the public images more like the mean of their logits."""
    unlike = {"lr": 0.2, "batch-size": 16, "local-epochs": 5}
    plain, done = (simulated({"method": name, "rounds": 1, "train": unlike}) for name in ("fedavg", "feddf"))
    assert [one.data for one in plain.tap.select("up", "train")] == [one.data for one in done.tap.select("up", "train")]
    joined = simulated({"method": "fedmd", "rounds": 1}).tap.select("down", "join")[0].message
    model, images = model_of(done.resolved, 0), joined.tensor("images")

    def predicted(vector: torch.Tensor) -> torch.Tensor:
        model.write(ALL, vector)
        return classify(model, embed(model, images))

    teacher = torch.stack([predicted(one.message.tensor("shared")) for one in done.tap.select("up", "train")]).mean(0)
    apart = [divergence(predicted(one.server_state()["shared"]), teacher, 1.0).item() for one in (plain, done)]
    assert apart[1] < 0.8 * apart[0]


def test_a_single_clients_model_is_its_ensemble(simulated: Any) -> None:
    """All gradients would be rounding errors, of which Adam makes steps of its full rate."""
    plain, done = (simulated({"method": name, "clients": 1, "rounds": 2}) for name in ("fedavg", "feddf"))
    assert same_bits(plain.server_state()["shared"], done.server_state()["shared"])


@pytest.mark.parametrize("width", [8, 64])
def test_feddf_by_logits_sends_up_what_does_not_depend_on_the_model(simulated: Any, width: int) -> None:
    model = {"name": "mlp", "norm": "none", "embedding": width}
    done = simulated({"method": "feddf", "rounds": 2, "feddf": {"upload": "logits"}, "model": model})
    assert values(done, "uplink") == {
        "parameters": 0,
        "prototype_values": 0,
        "other_values": 2 * 4 * IMAGES * CLASSES,
    }
    assert values(done, "downlink")["parameters"] == 2 * 4 * len(done.server_state()["shared"])
    assert done.finished.summary["accuracy"]["global"] is not None


def test_feddf_by_weights_ships_no_public_set(simulated: Any) -> None:
    assert "images" not in simulated({"method": "feddf", "rounds": 1}).tap.select("down", "join")[0].message
    by_logits = simulated({"method": "feddf", "rounds": 1, "feddf": {"upload": "logits"}})
    assert len(by_logits.tap.select("down", "join")[0].message.tensor("images")) == IMAGES


def test_fedmds_consensus_is_the_mean_of_the_logits(simulated: Any) -> None:
    done = simulated({"method": "fedmd", "rounds": 2})
    sent = [one.message.tensor("logits").double() for one in done.tap.select("up", "train") if one.round == 1]
    assert [set(one.message) for one in done.tap.select("down", "train") if one.round == 1] == [set()] * 4
    second = next(one.message for one in done.tap.select("down", "train") if one.round == 2)
    assert torch.allclose(second.tensor("consensus").double(), torch.stack(sent).mean(dim=0), atol=1e-6)
    assert values(done, "uplink")["other_values"] == 2 * 4 * IMAGES * CLASSES
    assert values(done, "downlink")["other_values"] == 4 * IMAGES * CLASSES


def test_fedmds_clients_agree_more_the_longer_they_digest(simulated: Any) -> None:
    def spread(**options: Any) -> float:
        done = simulated({"method": "fedmd", "rounds": 2, "train": {"lr": 0.02, "batch-size": 16}, "fedmd": options})
        last = [one.message.tensor("logits") for one in done.tap.select("up", "train") if one.round == 2]
        return float(torch.stack(last).std(dim=0).mean())

    assert spread(**{"digest-epochs": 40, "digest-lr": 0.2}) < 0.9 * spread(**{"digest-epochs": 1, "digest-lr": 1e-6})


def test_fedmd_trains_on_the_labelled_public_images_first(simulated: Any) -> None:
    with_labels = simulated({"method": "fedmd", "rounds": 1})
    alone = simulated({"method": "local", "rounds": 1})
    none = simulated({"method": "fedmd", "rounds": 1, "fedmd": {"pretrain-epochs": 0}})
    for client in range(4):
        own, plain = none.client_state(client), alone.client_state(client)
        assert own["head.weight"].equal(plain["head.weight"])
        assert not with_labels.client_state(client)["head.weight"].equal(own["head.weight"])


def test_fedmds_clients_may_have_unlike_backbones(simulated: Any) -> None:
    model = {"name": ["mlp", "cnn"], "norm": "none", "embedding": 8}
    done = simulated({"method": "fedmd", "rounds": 2, "model": model})
    assert not done.events("client-failed")
    assert values(done, "uplink")["other_values"] == 2 * 4 * IMAGES * CLASSES


def test_one_client_alone_agrees_with_itself(simulated: Any) -> None:
    assert not simulated({"method": "fedmd", "clients": 1, "rounds": 2}).events("client-failed")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"method": "feddf", "model": {"norm": "batch-local"}}, "without their batch statistics"),
        ({"method": "feddf", "compress": {"name": "ef21"}}, "counts the last changes of absent clients again"),
        (
            {"method": "feddf", "feddf": {"upload": "logits"}, "compress": {"name": "stc"}},
            "clients send no weights that it could shorten",
        ),
        ({"method": "fedmd", "compress": {"name": "stc"}}, "sends no weights up"),
        ({"method": "fedmd", "finetune": {"epochs": 1}}, "clients share no weights"),
    ],
)
def test_what_has_no_effect_or_contradicts_the_method_is_refused(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        prepare(Experiment.parse(keys))


@pytest.mark.parametrize("method", ["feddf", "fedmd"])
def test_without_public_images_it_is_refused(simulate: Any, method: str) -> None:
    with pytest.raises(InputError, match=f"public.per-class = 0, but {method} .* over public images"):
        Experiment.parse({"method": method, "public": {"per-class": 0}})
    with pytest.raises(InputError, match=f'"{method}" .* over public images: public.per-class must be above 0'):
        simulate({"method": method, "public": {"coverage": 0.0}})
