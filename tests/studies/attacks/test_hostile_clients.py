"""Each attack does what it claims, to hostile clients alone, and is refused where there is nothing to alter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import tiny_keys

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.attack_kinds import KINDS, draw_hostile, hostile_clients
from refprotofl.federation import Callback, attackers, run
from refprotofl.federation.attackers import flipped, poisoned, stamped
from refprotofl.federation.local_run import OpenEngine
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.wire import decode
from refprotofl.wire.tensors import same_bits

TINY = tiny_keys(clients=5, first_weights="sent")  # so that every request has the reference


def tiny(kind: str = "none", **changed: Any) -> Experiment:
    hostile = {} if kind == "none" else {"attack": {"kind": kind, "fraction": 0.4}}
    return Experiment.parse({**TINY, **hostile, **changed})


HOSTILE = hostile_clients(tiny("signflip"))
HONEST = [client for client in range(5) if client not in HOSTILE]


class Tap(Callback):
    def __init__(self) -> None:
        self.seen: dict[tuple[str, str, int, int], ValidatedMessage] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        self.seen[direction, phase, round, client] = ValidatedMessage(decode(data))

    def up(self, phase: str, client: int, round: int = 1) -> ValidatedMessage:
        return self.seen["up", phase, round, client]

    def reference(self, round: int = 1) -> torch.Tensor:
        """The vector that was sent down: RefProtoFL's adapter, or another method's shared vector."""
        message = self.seen.get(("down", "prototypes", round, 0)) or self.seen["down", "train", round, 0]
        return message.tensor("adapter" if "adapter" in message else "shared")

    def change(self, client: int, round: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Places and how far they were moved."""
        answer, reference = self.up("train", client, round), self.reference(round)
        if "shared" in answer:
            return torch.arange(len(reference)), answer.tensor("shared") - reference
        sent = answer.sparse("adapter")
        return sent.indices, sent.values - reference[sent.indices]


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tap]:
    done: dict[str, Tap] = {}

    def tapped(kind: str = "none", **changed: Any) -> Tap:
        experiment = tiny(kind, **changed)
        if experiment.hash not in done:
            done[experiment.hash] = Tap()
            run(experiment, out=tmp_path_factory.mktemp("run"), callback=done[experiment.hash])
        return done[experiment.hash]

    return tapped


# Who


def test_the_hostile_are_drawn_from_the_seed_alone() -> None:
    assert {tuple(hostile_clients(tiny(kind))) for kind in KINDS} == {tuple(HOSTILE)}
    assert len(HOSTILE) == 2
    assert len({tuple(draw_hostile(seed, 20, 4)) for seed in range(9)}) > 5


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        ({"kind": "signflip"}, "makes 0 of 5 clients hostile"),
        ({"fraction": 0.4}, "so that no client is hostile"),
        ({"kind": "signflip", "fraction": 0.95}, "makes 5 of 5 clients hostile"),
        ({"kind": "alie", "fraction": 0.2}, 'attack.kind = "alie" needs 2 to 4'),
        ({"kind": "signflip", "fraction": 0.4, "target": 3}, "attack.target = 3"),
        ({"kind": "labelflip", "fraction": 0.4, "strength": 3.0}, "attack.strength = 3"),
    ],
)
def test_what_would_be_without_effect_is_refused(attack: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny(attack=attack)


@pytest.mark.parametrize(
    ("experiment", "sentence"),
    [
        (tiny("signflip", method="fedproto"), "sends none up"),
        (tiny("squat", method="fedavg"), "chosen coordinates"),
        (tiny("prototype-shift", method="fedavg"), "class prototypes"),
        (tiny("scaling", method="fedavg", compress={"name": "qsgd"}), "changes of weights in float32"),
        (tiny("scaling", refprotofl={"value-type": "int8"}), "in float32"),
        (tiny("labelflip", method="centralised"), "asks no clients"),
        (tiny(attack={"kind": "backdoor", "fraction": 0.4, "target": 10}), "classes are 0 to 9"),
    ],
)
def test_an_attack_on_what_is_not_sent_is_refused(experiment: Experiment, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        run(experiment, out=tmp_path / "run")


# What


@pytest.mark.parametrize("method", ["refprotofl", "fedavg", "fednova", "fedpac"])
@pytest.mark.parametrize(("kind", "factor"), [("signflip", -1), ("scaling", 10)])
def test_hostile_changes_are_turned_or_scaled(tapped: Any, method: str, kind: str, factor: float) -> None:
    honest, attacked = tapped(method=method), tapped(kind, method=method)
    for client in HOSTILE:
        (places, change), (same_places, altered) = honest.change(client), attacked.change(client)
        assert torch.equal(places, same_places)
        assert torch.allclose(altered, factor * change, atol=1e-6)
    for client in HONEST:
        assert same_bits(honest.change(client)[1], attacked.change(client)[1])  # of the first round


def test_a_strength_is_taken_instead_of_the_kinds_own(tapped: Any) -> None:
    attacked = tapped(attack={"kind": "scaling", "fraction": 0.4, "strength": 100.0})
    for client in HOSTILE:
        assert torch.allclose(attacked.change(client)[1], 100 * tapped().change(client)[1], atol=1e-5)


def test_a_squatter_has_the_same_places_every_round_and_moves_them_far(tapped: Any) -> None:
    honest, attacked = tapped(), tapped("squat")
    for client in HOSTILE:
        (first, change), (second, _) = attacked.change(client, 1), attacked.change(client, 2)
        assert torch.equal(first, second)
        assert len(first) == len(honest.change(client)[0])  # the announced number
        assert not torch.equal(first, honest.change(client)[0])
        largest = float(honest.change(client)[1].abs().max())
        assert torch.allclose(change, torch.full_like(change, 10 * largest), rtol=1e-4)
    one, other = (set(attacked.change(client)[0].tolist()) for client in HOSTILE)
    assert one != other


def test_what_a_compressor_chose_is_squatted_on_too(tapped: Any) -> None:
    changed = {"method": "fedavg", "compress": {"name": "top-k"}}
    honest, attacked = tapped(**changed), tapped("squat", **changed)
    for client in range(5):
        before, after = (tap.up("train", client).sparse("change") for tap in (honest, attacked))
        assert torch.equal(before.indices, after.indices) is (client in HONEST)
        if client in HOSTILE:
            assert after.values.eq(10 * before.values.abs().max()).all()


def test_a_free_rider_sends_back_what_it_got_but_for_noise(tapped: Any) -> None:
    attacked = tapped("freerider")
    scale = 0.001 * float(attacked.reference().square().mean().sqrt())
    for client in HOSTILE:
        noise = attacked.change(client)[1] / scale
        assert 0.7 < float(noise.std()) < 1.3
        assert not torch.equal(attacked.change(client, 2)[1], attacked.change(client)[1])


def test_prototypes_are_moved_by_ten_times_their_length(tapped: Any) -> None:
    honest, attacked = tapped(), tapped("prototype-shift")
    ways = []
    for client in HOSTILE:
        before, after = (tap.up("prototypes", client).tensor("public_prototypes") for tap in (honest, attacked))
        length = float(before.norm(dim=1).mean())
        assert torch.allclose((after - before).norm(dim=1), torch.full((10,), 10 * length), rtol=1e-4)
        ways.append((after - before) / (10 * length))
    assert torch.allclose(ways[0], ways[1], atol=1e-5)  # all the same way, class by class
    assert float((ways[0] @ ways[0].T).fill_diagonal_(0).abs().max()) < 0.95
    fedproto = tapped("prototype-shift", method="fedproto")
    plain = tapped(method="fedproto")
    for client in HOSTILE:
        before, after = (tap.up("train", client) for tap in (plain, fedproto))
        moved = after.tensor("prototypes") - before.tensor("prototypes")
        classes = before.tensor("classes").long() if "classes" in before else torch.arange(10)
        assert torch.allclose(moved / moved.norm(dim=1, keepdim=True), ways[0][classes], atol=1e-4)


def test_a_client_that_hides_in_the_spread_is_this_many_deviations_off_the_groups_mean() -> None:
    changes = [torch.tensor([1.0, 2.0, 0.0]), torch.tensor([3.0, 2.0, 0.0])]
    hidden = attackers.hidden(changes, 1.5)
    assert hidden.tolist() == pytest.approx([2 - 1.5 * 2**0.5, 2, 0])
    assert attackers.opposed(changes, 5).tolist() == [-10, -10, 0]


@pytest.mark.parametrize("method", ["refprotofl", "fedavg"])
def test_colluding_clients_know_what_their_group_would_send(tapped: Any, method: str) -> None:
    honest, inside, against = (tapped(kind, method=method) for kind in ("none", "alie", "ipm"))
    for client in HOSTILE:
        places, change = honest.change(client)
        for attacked in (inside, against):
            assert torch.equal(places, attacked.change(client)[0])
            assert not torch.allclose(change, attacked.change(client)[1], rtol=1e-2)
        assert float(change @ against.change(client)[1]) < 0
    for client in HONEST:
        assert same_bits(honest.change(client)[1], inside.change(client)[1])


@pytest.mark.parametrize("kind", ["labelflip", "backdoor"])
def test_attacks_on_data_change_what_hostile_clients_learn(tapped: Any, kind: str) -> None:
    honest, attacked = tapped(method="fedavg"), tapped(kind, method="fedavg")
    for client in range(5):
        same = same_bits(honest.change(client)[1], attacked.change(client)[1])
        assert same is (client in HONEST)


def samples() -> Samples:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 200, (9, 1, 8, 8)).astype(np.uint8))
    return Samples(images, torch.arange(9) % 3, torch.tensor([0, 1, 2, 4, 7, 8]))


def test_labels_are_flipped_for_these_samples_alone() -> None:
    held = samples()
    assert flipped(held, 3).own_labels.tolist() == [2, 1, 0, 1, 1, 0]
    assert held.own_labels.tolist() == [0, 1, 2, 1, 1, 2]


def test_half_of_a_backdoors_samples_carry_trigger_and_target() -> None:
    held = samples()
    bad = poisoned(held, 2, np.random.default_rng(1))
    marked = (bad.own_inputs[..., -2:, -2:] == 255).flatten(1).all(dim=1)
    assert int(marked.sum()) == 3
    assert bad.own_labels[marked].tolist() == [2, 2, 2]
    assert bad.own_labels[~marked].equal(held.own_labels[~marked])
    assert bad.own_inputs[~marked].equal(held.own_inputs[~marked])
    assert int(held.inputs.max()) < 255  # the whole set, which all clients see, is as it was
    assert stamped(held.inputs)[..., :-2].equal(held.inputs[..., :-2])


def test_a_run_with_hostile_clients_does_not_depend_on_the_workers(tmp_path: Path, patient: OpenEngine) -> None:
    one, two = run(tiny("alie"), out=tmp_path / "1"), run(tiny("alie"), out=tmp_path / "2", workers=2, engine=patient)
    assert one.summary["state_digest"] == two.summary["state_digest"]
    assert one.summary["experiment_hash"] != tiny().hash
