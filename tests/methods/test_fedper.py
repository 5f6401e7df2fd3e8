"""FedPer: the body is FedAvg's, the heads never leave."""

import pytest
import torch

from refprotofl.core.errors import InputError
from refprotofl.models import BODY, build_model


@pytest.fixture(scope="module")
def fedper(simulated):
    return simulated({"method": "fedper"})


def test_only_the_body_crosses(fedper):
    model = build_model(fedper.resolved)
    size = sum(model.sizes(BODY))
    for direction in ("up", "down"):
        messages = [one.message for one in fedper.tap.select(direction, "train")]
        assert len(messages) == 4 * 3
        assert all(list(message) == ["shared"] and message["shared"].shape == (size,) for message in messages)
    assert fedper.communication["uplink"]["parameters"] == 4 * 3 * size
    assert fedper.communication["downlink"]["parameters"] == 4 * 3 * size


def test_the_body_is_averaged_by_data_size(fedper):
    sizes = {one.client: one.message["samples"] for one in fedper.tap.select("up", "join")}
    sent = {one.client: one.message["shared"].double() for one in fedper.tap.select("up", "train") if one.round == 1}
    mean = sum(sizes[client] * body for client, body in sent.items()) / sum(sizes.values())
    received = next(one.message["shared"] for one in fedper.tap.select("down", "train") if one.round == 2)
    assert torch.allclose(received.double(), mean, atol=1e-7, rtol=0)


def test_heads_stay_private_and_differ(fedper):
    heads = [fedper.client_state(client)["head.weight"] for client in range(4)]
    assert not any(torch.equal(heads[0], other) for other in heads[1:])
    assert not any(name.startswith(("backbone.", "feature.")) for name in fedper.client_state(0))


def test_there_is_no_global_model(fedper):
    accuracy = fedper.finished.summary["accuracy"]
    assert accuracy["global"] is None
    assert accuracy["personal"] is not None


def test_a_private_head_knows_little_of_the_classes_that_its_client_lacks(simulated):
    table = {"train-limit": 800, "partition": "shards", "train": {"lr": 0.1}, "evaluate": {"test-limit": 200}}
    accuracy = simulated({"method": "fedper", **table}).finished.summary["accuracy"]
    assert accuracy["own"] > accuracy["personal"] + 0.2


@pytest.mark.parametrize("method", ["fedper", "fedrep", "fedpac"])
def test_the_whole_model_cannot_be_shared(tiny, method):
    with pytest.raises(InputError, match=f"{method} keeps its heads private"):
        tiny({"method": method, "share": "full"})
