"""The examples that are settings: they load with any preset, and what they promise crosses."""

from pathlib import Path

import pytest
import torch

from refprotofl.experiment.presets import load_experiment

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["thin", "refprotofl-plus"])
@pytest.mark.parametrize("preset", ["quick", "small", "full", "paper"])
def test_an_example_goes_with_any_preset(name, preset):
    experiment = load_experiment(EXAMPLES / f"{name}.toml", preset)
    assert experiment.method == name.removesuffix("-plus")
    assert experiment.model.name == load_experiment(preset=preset).model.name


def test_plus_sends_prototypes_in_two_bytes_with_the_update(simulate):
    stored = load_experiment(EXAMPLES / "refprotofl-plus.toml").plain()
    switches = {key: stored["refprotofl"][key] for key in ("value-type", "downlink", "prototype-type", "timing")}
    done = simulate({"refprotofl": switches, "public": {"per-class": 2, "train-on": True}})
    assert done.events("client-failed") == []
    assert {one.phase for one in done.tap.select("up")} >= {"join", "train"}
    assert not done.tap.select("up", "prototypes")
    for one in done.tap.select("up", "train"):
        assert one.message.tensor("public_prototypes").dtype is torch.bfloat16
        assert one.message.sparse("change").values.dtype is torch.int8
    later = [one.message for one in done.tap.select("down", "train") if one.round > 1]
    assert all(one.tensor("anchors").dtype is torch.bfloat16 for one in later)


def test_narrow_prototypes_stand_for_nearly_the_same_anchors(simulate):
    """Before anything was trained: a bfloat16 has eight bits, so a mean is off by one in 256 at most."""
    wide, narrow = (simulate({"rounds": 1, "refprotofl": {"prototype-type": one}}) for one in ("float32", "bfloat16"))
    exact, rounded = (done.server_state()["anchors"] for done in (wide, narrow))
    assert not torch.equal(exact, rounded)
    assert torch.allclose(exact, rounded, rtol=1 / 256, atol=1e-4)


@pytest.mark.parametrize("method", ["refprotofl", "fedavg", "thin"])
def test_the_value_code_changes_bytes_and_nothing_else(simulate, method):
    keys = {"method": method, "share": "full" if method == "fedavg" else "adapter"}
    plain, coded = (simulate({**keys, "value-code": one}) for one in ("plain", "entropy"))
    assert plain.finished.summary["state_digest"] == coded.finished.summary["state_digest"]
    before, after = (done.communication["uplink"]["payload_bytes"] for done in (plain, coded))
    assert after < before if method == "fedavg" else after <= before  # short tensors stay as they are


def test_a_budget_holds_in_the_value_code_and_buys_more(simulate):
    keys = {"refprotofl": {"uplink-budget": 3000}}
    plain, coded = (simulate({**keys, "value-code": one}) for one in ("plain", "entropy"))
    sent = [max(len(one.data) for one in done.tap.select("up", "train")) for done in (plain, coded)]
    assert max(sent) <= 3000
    values = [len(done.tap.select("up", "train")[0].message.sparse("adapter").values) for done in (plain, coded)]
    assert values[1] > values[0]
