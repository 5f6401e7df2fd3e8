"""Thin: a bit a weight both ways, and everyone of one mind about what is held."""

import pytest
import torch

from refprotofl.basics.state import tensor_of
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.errors import InputError, RunError
from refprotofl.experiment import Experiment
from refprotofl.handover.trained import load_trained
from refprotofl.models.build import build_model
from refprotofl.simulation.run import Watcher, run

UNLUCKY = 2


@pytest.fixture
def simulate_thin(simulate):
    def simulate_thin(*, engine=None, **over):
        return simulate({"method": "thin", **over}, **({"engine": engine} if engine else {}))

    return simulate_thin


def parameters(simulation) -> int:
    return len(build_model(simulation.resolved).read(("backbone", "feature", "head")))


def test_nothing_is_sent_before_the_first_training(simulate_thin):
    done = simulate_thin()
    first = [one for one in done.tap.select("down", "train") if one.round == 1]
    assert len(first) == 4
    assert all(set(one.message) == {"version"} for one in first)  # the weights come from the seed
    later = [one for one in done.tap.select("down", "train") if one.round == 2]
    assert all(set(one.message) == {"version", "base", "code", "scales"} for one in later)
    assert "images" not in next(iter(done.tap.select("down", "join"))).message  # the public set stays at the server


def test_a_bit_a_weight_goes_up_and_down(simulate_thin):
    done = simulate_thin()
    size = parameters(done)
    for one in (*done.tap.select("up", "train"), *done.tap.select("down", "finish")):
        assert len(one.message.tensor("code")) == -(-size // 8)
    assert done.communication["uplink"]["parameters"] == 3 * 4 * size


def test_clients_hold_what_the_server_thinks_they_hold(simulate_thin):
    done = simulate_thin()
    server = done.server_state()
    for client in range(4):
        state = done.client_state(client)
        assert torch.equal(tensor_of(state, "held"), tensor_of(server, "shared"))
        assert state["held_version"] == server["version"] == 3


def test_who_missed_rounds_catches_up_by_steps_or_as_a_whole(simulate_thin):
    """With half of the clients a round some miss steps; at one bit eight of them take as long as the whole model."""
    done = simulate_thin(clients=6, fraction=0.5, rounds=8, thin={"tune-epochs": 0})
    size, server = parameters(done), done.server_state()
    missed = [one for one in done.tap.select("down", "train") if "base" in one.message]
    steps = {one.message.whole("version") - one.message.whole("base") for one in missed}
    assert max(steps) > 1
    for one in missed:
        count = one.message.whole("version") - one.message.whole("base")
        assert len(one.message.tensor("code")) == count * -(-size // 8)
    last = max(one.round for one in missed)
    for one in missed:
        if one.round == last:
            assert torch.equal(tensor_of(done.client_state(one.client), "held"), tensor_of(server, "shared"))


def test_the_whole_model_is_sent_where_that_is_shorter(simulate_thin):
    done = simulate_thin(clients=6, fraction=0.34, rounds=8, thin={"down-bits": 8.0, "tune-epochs": 0})
    whole = [one for one in done.tap.select("down", "train") if "code" in one.message and "base" not in one.message]
    assert whole  # two missed steps of 8 bits take longer than all of it in 8
    server, last = done.server_state(), max(whole, key=lambda one: one.round)
    if last.round == 8:
        held = tensor_of(done.client_state(last.client), "held")
        shared = tensor_of(server, "shared")
        assert float((held - shared).norm() / shared.norm()) < 0.01


@pytest.mark.parametrize("feedback", [True, False])
def test_what_a_code_leaves_out_is_owed(simulate_thin, feedback):
    done = simulate_thin(thin={"feedback": feedback, "server-epochs": 0, "tune-epochs": 0})
    assert ("rest" in done.client_state(0)) is feedback
    if feedback:
        assert tensor_of(done.client_state(0), "rest").norm() > 0


@pytest.mark.parametrize(("budget", "code"), [(300, "rotated"), (777, "entropy"), (2001, "rotated"), (901, "sparse")])
def test_budgets_hold_to_the_byte(simulate_thin, budget, code):
    done = simulate_thin(thin={"uplink-budget": budget, "downlink-budget": budget, "code": code})
    up = {len(one.data) for one in done.tap.select("up", "train")}
    down = {len(one.data) for one in done.tap.select("down", "train", "finish")}
    assert max(up) == budget  # used up
    assert max(down) <= budget
    assert budget - max(down) <= 2  # the numbers of version and base may be longer


@pytest.mark.parametrize("code", ["entropy", "sparse"])
def test_other_codes_keep_everyone_of_one_mind(simulate_thin, code):
    done = simulate_thin(thin={"code": code})
    plain = simulate_thin()
    assert done.events("client-failed") == []
    assert done.communication["uplink"]["payload_bytes"] == plain.communication["uplink"]["payload_bytes"]
    for client in range(4):
        assert torch.equal(tensor_of(done.client_state(client), "held"), tensor_of(done.server_state(), "shared"))


def test_cooling_makes_later_rounds_move_less(simulate_thin):
    options = {"server-epochs": 0, "tune-epochs": 0, "feedback": False}
    warm, cold = (simulate_thin(thin={**options, "cooling": cooling}) for cooling in (1.0, 0.01))
    moves = []
    for done in (warm, cold):
        second = [one.message for one in done.tap.select("up", "train") if one.round == 2]
        moves.append(max(float(one.tensor("scales").float().norm()) for one in second))
    assert moves[1] < 0.05 * moves[0]


def test_a_budget_that_is_too_small_names_the_least(simulate_thin):
    with pytest.raises(
        (InputError, RunError), match=r"thin.uplink-budget = 10 bytes is too small: .* \d+ bytes at least"
    ):
        simulate_thin(thin={"uplink-budget": 10})


def test_each_client_ends_with_a_model_of_its_own(simulate_thin):
    done = simulate_thin(train={"batch-size": 16, "lr": 0.05})
    server = done.server_state()
    for client in range(4):
        own = tensor_of(done.client_state(client), "own")
        trained = load_trained(done.folder, client)
        assert torch.equal(trained.model.read(("backbone", "feature", "head")), own)
    assert not torch.equal(own, tensor_of(server, "exact"))


def test_without_tuning_there_is_no_last_step(simulate_thin):
    done = simulate_thin(thin={"tune-epochs": 0})
    assert not done.tap.select("down", "finish")
    summary = done.finished.summary["accuracy"]
    assert summary["personal"] == pytest.approx(summary["global"])


@pytest.mark.parametrize("drift", ["proximal", "anchors"])
def test_drift_is_held(simulate_thin, drift):
    free = simulate_thin(thin={"strength": 1.0})
    held = simulate_thin(thin={"drift": drift, "strength": 1.0})
    assert free.finished.summary["state_digest"] != held.finished.summary["state_digest"]
    anchors = ["anchors" in one.message for one in held.tap.select("down", "train")]
    assert all(anchors) if drift == "anchors" else not any(anchors)


def test_a_killed_run_goes_on_to_the_same_digest(simulate_thin, tmp_path):
    class Kill(Watcher):
        def committed(self, event, accuracy):
            if event["round"] == 2:
                raise KeyboardInterrupt

    done = simulate_thin(clients=6, fraction=0.5)
    experiment = Experiment.parse(done.experiment.plain())
    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path / "killed", watcher=Kill())
    again = run(experiment, out=tmp_path / "killed", resume=True)
    assert again.summary["state_digest"] == done.finished.summary["state_digest"]


def test_who_lost_its_store_is_sent_the_steps_from_the_start(simulate_thin, stored_by):
    class Forgetful(ClientStore):
        def base(self, client, location):
            lost = location.file == f"00000{UNLUCKY}-2.safetensors"
            return super().base(client, Location() if lost else location)

    done = simulate_thin(engine=stored_by(Forgetful))
    assert done.events("client-failed") == []
    asked = [one.message for one in done.tap.select("down", "train") if one.client == UNLUCKY and one.round == 3]
    assert [one.whole("base") for one in asked] == [1, 0]
    assert torch.equal(tensor_of(done.client_state(UNLUCKY), "held"), tensor_of(done.server_state(), "shared"))


def test_its_own_code_and_a_compressor_do_not_go_together():
    with pytest.raises(InputError, match="thin codes what it sends by itself"):
        Experiment.parse({"method": "thin", "compress": {"name": "top-k"}})


def test_batch_statistics_are_refused():
    with pytest.raises(InputError, match="batch-local"):
        Experiment.parse({"method": "thin", "model": {"norm": "batch-local"}})


@pytest.mark.parametrize("public", [{"per-class": 0}, {"coverage": 0.0}, {"classes": []}])
def test_anchors_need_a_public_set(public):
    assert Experiment.parse({"method": "thin", "thin": {"drift": "anchors"}}).thin.drift == "anchors"
    with pytest.raises(InputError, match="made of the public set"):
        Experiment.parse({"method": "thin", "thin": {"drift": "anchors"}, "public": public})
