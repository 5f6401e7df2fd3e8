"""`first-weights`: clients derive the weights that they start from, or are sent them, under any method alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.methods.conftest import Simulate, Simulation
from tests.tiny import tiny_experiment
from torch import nn

from refprotofl.core import InputError
from refprotofl.core.state import tensor_of
from refprotofl.experiment.attack_kinds import hostile_clients
from refprotofl.federation import run
from refprotofl.methods.base.broadcast import fingerprint
from refprotofl.wire import encode

STC = {"method": "fedavg", "share": "full", "compress": {"name": "stc"}}
SHARING: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("refprotofl", "fedavg", "fedprox", "fednova", "fedproc", "vhl", "fast")},
    **{name: {"method": name} for name in ("fedper", "fedrep", "fedpac", "fedgh", "lg-fedavg")},
    "stc": STC,
    "ef21": {"method": "fedavg", "share": "full", "compress": {"name": "ef21"}},
    "sparse downlink": {"refprotofl": {"downlink": "sparse", "timing": "post-train"}},
    "fine-tuned": {**STC, "finetune": {"epochs": 1}},
    "half of the clients": {"method": "fedavg", "clients": 6, "fraction": 0.5},
}


def pair(simulated: Simulate, over: dict[str, Any]) -> tuple[Simulation, Simulation]:
    seed, sent = (simulated({**over, "first-weights": one}) for one in ("seed", "sent"))
    return seed, sent


@pytest.mark.parametrize("name", SHARING)
def test_only_the_bytes_of_the_first_broadcast_differ(simulated: Simulate, name: str) -> None:
    """To the byte: the messages that carry the initial weights are shorter by these, and nothing else changes."""
    seed, sent = pair(simulated, SHARING[name])
    assert seed.finished is not None
    assert sent.finished is not None
    one, other = seed.finished.summary, sent.finished.summary
    assert one["state_digest"] == other["state_digest"]
    assert one["accuracy"] == other["accuracy"]
    assert seed.communication["uplink"] == sent.communication["uplink"]
    assert seed.communication["one_off"] == sent.communication["one_off"]
    whole = [crossing for crossing in sent.tap.select("down") if crossing.round == 1]
    short = [crossing for crossing in seed.tap.select("down") if crossing.round == 1]
    named = [crossing for crossing in short if any(key.startswith("initial_") for key in crossing.message)]
    assert len({crossing.client for crossing in named}) == len(named) == seed.resolved.cohort_size
    (field,) = (key.removeprefix("initial_") for key in named[0].message if key.startswith("initial_"))
    size = next(crossing.message.tensor(field).numel() for crossing in whole if field in crossing.message)
    saved = len(encode({field: torch.zeros(size)})) - len(encode({f"initial_{field}": "0" * 16}))
    down = [done.communication["downlink"] for done in (seed, sent)]
    assert down[1]["payload_bytes"] - down[0]["payload_bytes"] == saved * len(named)
    assert down[1]["parameters"] - down[0]["parameters"] == size * len(named)
    assert down[1]["messages"] == down[0]["messages"]


def test_with_steps_later_clients_save_the_weights_too(simulated: Simulate) -> None:
    seed, sent = pair(simulated, {**STC, "clients": 6, "fraction": 0.5})
    assert seed.finished is not None
    assert sent.finished is not None
    one, other = seed.finished.summary, sent.finished.summary
    assert (one["state_digest"], one["accuracy"]) == (other["state_digest"], other["accuracy"])
    whole = [
        sum("shared" in crossing.message for crossing in done.tap.select("down", "train")) for done in (seed, sent)
    ]
    assert whole[0] == 0 < whole[1]


@pytest.mark.parametrize("first_weights", ["seed", "sent"])
@pytest.mark.parametrize("over", [STC, {"method": "fedavg"}], ids=["stc", "no compression"])
def test_a_client_that_joins_later_is_sent_the_weights_in_full_or_the_steps_from_the_first(
    simulated: Simulate, over: dict[str, Any], first_weights: str
) -> None:
    done = simulated({**over, "clients": 6, "fraction": 0.5, "first-weights": first_weights})
    first = {one.client for one in done.tap.select("down", "train") if one.round == 1}
    late = [one.message for one in done.tap.select("down", "train") if one.round == 2 and one.client not in first]
    assert late
    steps = over == STC and first_weights == "seed"
    assert {frozenset(("shared", "initial_shared", "base", "signs")) & set(message) for message in late} == {
        frozenset(("initial_shared", "base", "signs") if steps else ("shared",))
    }


def test_clients_with_another_backbone_derive_the_servers_adapter(simulated: Simulate) -> None:
    """The draw of an adapter follows on that of a backbone: clients build that of the first client's model."""
    seed, sent = pair(
        simulated, {"model": {"name": ["mlp", "tests.methods.test_first_weights:as_wide"], "norm": "none"}}
    )
    assert seed.events("client-failed") == []
    assert seed.finished is not None
    assert sent.finished is not None
    assert seed.finished.summary["state_digest"] == sent.finished.summary["state_digest"]


def as_wide(shape: tuple[int, int, int]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 96), nn.ReLU(), nn.Linear(96, 128), nn.ReLU())


def drawn_anew(shape: tuple[int, int, int]) -> nn.Module:
    """Return a backbone whose weights do not follow from torch's seed."""
    layer = nn.Linear(int(np.prod(shape)), 16)
    with torch.no_grad():
        layer.bias.copy_(torch.from_numpy(np.random.default_rng().standard_normal(16)))
    return nn.Sequential(nn.Flatten(), layer)


def test_a_backbone_that_does_not_follow_from_the_seed_must_be_sent(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"method": "fedavg", "rounds": 1, "model": {"name": f"{__name__}:drawn_anew"}}
    with pytest.raises(InputError, match=r'other initial weights each time .* set first-weights = "sent"'):
        run(tiny_experiment(**keys), out=tmp_path / "seed")
    run(tiny_experiment(**keys, first_weights="sent"), out=tmp_path / "sent")


def test_a_device_whose_seed_gives_other_weights_says_so(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(vector: torch.Tensor) -> str:
        return fingerprint(vector + 1e-7)

    monkeypatch.setattr("refprotofl.methods.base.client.fingerprint", other)
    with pytest.raises(InputError, match=r'are not the server.s: set first-weights = "sent"'):
        simulate({"method": "fedavg", "first-weights": "seed"})
    done = simulate.last  # type: ignore[attr-defined]
    assert 'set first-weights = "sent"' in done.log(0)


@pytest.mark.parametrize("kind", ["signflip", "freerider", "ipm"])
def test_hostile_clients_alter_the_same_vector(simulated: Simulate, kind: str) -> None:
    over = {"method": "fedavg", "clients": 5, "attack": {"kind": kind, "fraction": 0.4}}
    seed, sent = pair(simulated, over)
    assert len(hostile_clients(seed.resolved)) == 2
    assert tensor_of(seed.server_state(), "shared").equal(tensor_of(sent.server_state(), "shared"))
