"""Every compressor in real runs: with every kind of method, down as well as up, after losses and after a stop."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import InputError
from refprotofl.core.streams import stream
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.federation.participation import draw_cohort
from refprotofl.federation.resolution import prepare
from refprotofl.methods.common.rotated_quantiser import widths
from refprotofl.methods.compressors import create_compressor
from refprotofl.wire import encode
from refprotofl.wire.tensors import same_bits

pytestmark = pytest.mark.slow

NAMES = ("top-k", "top-k-ef", "ef21", "random-k", "stc", "qsgd", "eden")
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"method": "fedavg", "share": "full"},
    "lg-fedavg": {"method": "lg-fedavg"},
    "fedprox": {"method": "fedprox", "share": "adapter"},
    "fednova": {"method": "fednova", "share": "adapter"},
    "refprotofl": {"method": "refprotofl", "refprotofl": {"apud": "off"}},
}
SIZE = 128 * 8 + 8 + 80 + 10  # of the tiny model's adapter
KEPT = SIZE // 10
UNLUCKY = 2


def over(name, method="lg-fedavg", **more):
    table = {key: more.pop(key) for key in ("keep", "bits", "decay", "bucket", "downlink") if key in more}
    return METHODS[method] | {"compress": {"name": name} | table} | more


def shared(simulation):
    state = simulation.server_state()
    return state.get("shared", state.get("adapter"))


def weights(simulation):
    return {one.client: float(one.message["samples"]) for one in simulation.tap.select("up", "join")}


def read(simulation, one):
    """The change that a message says."""
    compressor, seed = create_compressor(simulation.experiment), simulation.experiment.seed
    draw = partial(stream, seed, simulation.experiment.compress.name, client=one.client, round=one.round)
    return compressor.decode(one.message, SIZE, draw).double()


# With every method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_every_compressor_shortens_the_uplink_of_every_method(simulated, name, method):
    plain, short = simulated(over("none", method, rounds=2)), simulated(over(name, method, rounds=2))
    assert short.events("client-failed") == []
    size = plain.communication["uplink"]["parameters"] // 8
    sent = size if name in ("qsgd", "eden") else size // 10
    assert short.communication["uplink"]["parameters"] == 8 * sent
    value_bytes = {"stc": 1 / 8, "qsgd": 1, "eden": sum(widths(size)) / size}.get(name, 4)
    saved = plain.communication["uplink"]["payload_bytes"] - short.communication["uplink"]["payload_bytes"]
    assert 0.8 < saved / (8 * (4 * size - value_bytes * sent)) < 1.01  # indices and heads take the rest
    assert not shared(short).equal(shared(plain))
    moved = [(shared(one) - first_broadcast(one)).norm() for one in (plain, short)]
    assert 0.05 < moved[1] / moved[0] < 20  # neither nothing nor out of hand


def first_broadcast(simulation):
    message = simulation.tap.select("down", "prototypes", "train")[0].message
    return message.get("shared", message.get("adapter"))


@pytest.mark.parametrize("method", METHODS)
def test_keeping_everything_is_no_compression(simulated, method):
    plain, whole = simulated(over("none", method, rounds=2)), simulated(over("top-k", method, keep=1.0, rounds=2))
    assert torch.allclose(shared(plain), shared(whole), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["top-k", "random-k", "qsgd", "eden"])
@pytest.mark.parametrize("method", ["lg-fedavg", "refprotofl"])
def test_changes_are_averaged_over_all_participants(simulated, name, method):
    done = simulated(over(name, method, rounds=2))
    samples, moved = weights(done), torch.zeros(SIZE).double()
    for one in done.tap.select("up", "train"):
        if one.round == 1:
            moved += samples[one.client] * read(done, one)
    expected = first_broadcast(done).double() + moved / sum(samples.values())
    second = next(one.message for one in done.tap.select("down", "prototypes", "train") if one.round == 2)
    assert torch.allclose(second.get("shared", second.get("adapter")).double(), expected, atol=1e-6, rtol=0)


def test_four_bits_are_half_of_eight(simulated):
    eight, four = simulated(over("qsgd", rounds=1)), simulated(over("qsgd", bits=4, rounds=1))
    assert len(four.tap.select("up", "train")[0].message["levels"]) == SIZE // 2
    saved = eight.communication["uplink"]["payload_bytes"] - four.communication["uplink"]["payload_bytes"]
    assert saved == 4 * SIZE // 2
    assert four.communication["uplink"]["parameters"] == 4 * SIZE


# Memories


def test_the_rest_stays_with_the_client_and_comes_later(simulated):
    done = simulated(over("top-k-ef", fraction=0.5, rounds=4))
    for client in done.checkpoint().records:
        assert done.client_state(client)["memory"].abs().max() > 0
    assert "memory" not in done.server_state()
    for one in done.tap.crossings:
        assert "memory" not in one.message


@pytest.mark.parametrize("method", ["lg-fedavg", "fednova", "refprotofl"])
def test_ef21_keeps_the_same_memory_on_both_sides(simulated, method):
    done = simulated(over("ef21", method, fraction=0.5, rounds=4))
    memory = done.server_state()["memory"]
    assert len(done.checkpoint().records) > 2  # some were absent from the last round
    for client in done.checkpoint().records:
        assert same_bits(memory[client], done.client_state(client)["memory"])


def test_ef21_steps_by_everyones_latest_change(simulated):
    done = simulated(over("ef21", fraction=0.5, rounds=4))
    state = done.server_state()
    last = next(one.message["shared"] for one in done.tap.select("down", "train") if one.round == 4)
    joined = state["samples"].double().unsqueeze(1)
    expected = last.double() + (joined * state["memory"].double()).sum(dim=0) / joined.sum()
    assert torch.allclose(state["shared"].double(), expected, atol=1e-6, rtol=0)
    absent = set(done.checkpoint().records) - set(draw_cohort(done.experiment, 4))
    assert absent
    assert all(state["memory"][client].abs().max() > 0 for client in absent)


def test_fednova_with_ef21_divides_an_absent_clients_change_by_its_own_progress(simulated):
    done = simulated(over("ef21", "fednova", fraction=0.5, rounds=4))
    state = done.server_state()
    last = next(one.message["shared"] for one in done.tap.select("down", "train") if one.round == 4)
    known = [client for client in range(4) if state["samples"][client] > 0]
    share = {client: float(state["samples"][client] / state["samples"].sum()) for client in known}
    own = {client: float(state["progress"][client]) for client in known}
    effective = sum(share[client] * own[client] for client in known)
    step = sum(share[client] * effective / own[client] * state["memory"][client].double() for client in known)
    assert torch.allclose(state["shared"].double(), last.double() + step, atol=1e-6, rtol=0)


# STC's downlink


def test_stcs_server_owes_what_its_steps_left_out(simulated):
    done = simulated(over("stc", rounds=3))
    state, samples, moved = done.server_state(), weights(done), torch.zeros(SIZE).double()
    for one in done.tap.select("up", "train"):
        moved += samples[one.client] * read(done, one) / sum(samples.values())
    covered = state["shared"].double() - first_broadcast(done).double()
    assert state["residual"].abs().max() > 0
    assert torch.allclose(covered + state["residual"].double(), moved, atol=1e-6, rtol=0)
    assert len(state["step"][state["step"] != 0].abs().unique()) == 1


# The downlink of the others

DOWN = ("top-k", "top-k-ef", "ef21", "random-k", "qsgd", "eden")


def residual_of(simulation):
    """The mean change of all clients that no broadcast has covered yet."""
    samples, moved = weights(simulation), torch.zeros(SIZE).double()
    for one in simulation.tap.select("up", "train"):
        moved += samples[one.client] * read(simulation, one) / sum(samples.values())
    return moved - (shared(simulation).double() - first_broadcast(simulation).double())


def number_of_steps(message):
    """How many steps a request says, the last one included."""
    joined, count = message["missed"].numpy().tobytes() if "missed" in message else b"", 1
    while joined:
        joined, count = joined[4 + int.from_bytes(joined[:4], "little") :], count + 1
    return count


@pytest.mark.parametrize("first_weights", ["seed", "sent"])
@pytest.mark.parametrize("method", ["lg-fedavg", "fednova", "refprotofl"])
@pytest.mark.parametrize("name", ["stc", *DOWN])
def test_clients_are_sent_the_steps_that_they_missed_or_the_whole_if_that_is_shorter(
    simulated, name, method, first_weights
):
    wanted = over(name, method, downlink="same", fraction=0.5, rounds=8, evaluate={"every": 1, "test-limit": 20})
    done = simulated(wanted | {"first-weights": first_weights})
    assert done.events("client-failed") == []
    field, verb = ("adapter", "prototypes") if method == "refprotofl" else ("shared", "train")
    fields = set(create_compressor(done.experiment).fields(SIZE))
    held: dict[int, int] = {}
    sent_whole, lengths, missed = set(), {}, 0
    for one in done.tap.select("down", verb):
        message, base = one.message, held.get(one.client)
        if base is None and f"initial_{field}" in message and one.round > 1:
            base = 1  # it derives the first broadcast
        if field in message or one.round == 1:
            sent_whole.add((base, one.round))
        else:
            assert fields <= set(message)
            assert message["base"] == base
            assert number_of_steps(message) == one.round - base
            lengths[one.round - base] = len(one.data)
            missed += one.round - base > 1
        held[one.client] = one.round
    assert missed
    assert max(lengths.values()) < 4 * SIZE + 400  # never longer than the whole
    late = {(1 if base is None and first_weights == "seed" else base, round) for base, round in sent_whole if round > 1}
    assert first_weights == "seed" or None in {base for base, _ in late}
    for base, round in late:  # the steps would have been longer
        assert base is None or (round - base) * lengths[1] > 4 * SIZE
    newest = {one.round: one.message[field] for one in done.tap.select("down", "evaluate")}
    for client in draw_cohort(done.experiment, 8):
        assert same_bits(done.client_state(client)[field], newest[7])


@pytest.mark.parametrize("name", DOWN)
def test_a_client_that_follows_holds_the_servers_vector_to_the_bit(simulated, name):
    """Everyone takes part, so all follow from the first broadcast on, and the last evaluation sends the whole."""
    done = simulated(over(name, downlink="same", rounds=4, evaluate={"every": 1, "test-limit": 20}))
    wholes = {one.round: one.message["shared"] for one in done.tap.select("down", "evaluate")}
    for client in range(4):
        state = done.client_state(client)
        assert state["shared_round"] == 4
        assert same_bits(state["shared"], wholes[3])
    assert not wholes[3].equal(wholes[4])


@pytest.mark.parametrize("name", ["top-k-ef", "eden", "qsgd"])
def test_the_server_owes_what_its_steps_left_out(simulated, name):
    done = simulated(over(name, downlink="same", rounds=3))
    residual = done.server_state()["residual"]
    assert residual.abs().max() > 0
    assert torch.allclose(residual.double(), residual_of(done), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("name", "more"), [("random-k", {}), ("top-k", {}), ("qsgd", {"bits": 4})])
def test_nothing_is_owed_where_a_residual_would_grow_or_the_rest_is_lost(simulated, name, more):
    done = simulated(over(name, downlink="same", rounds=3, **more))
    assert done.server_state()["residual"].eq(0).all()
    assert residual_of(done).abs().max() > 1e-4


@pytest.mark.parametrize(("name", "bits"), [("qsgd", 8), ("qsgd", 4), ("eden", 4), ("eden", 1)])
def test_a_step_down_is_as_long_as_a_change_up(simulated, name, bits):
    done = simulated(over(name, bits=bits, downlink="same", rounds=3))
    change = len(done.tap.select("up", "train")[0].data)
    values = {"qsgd": SIZE, "eden": sum(widths(SIZE))}[name]
    assert 0 <= change - values * bits / 8 < 60  # norms or scales, names and shapes
    steps = [one for one in done.tap.select("down", "train") if one.round > 1]
    assert len(steps) == 8
    for one in steps:
        assert len(one.data) == change + len("_base") + 2  # one name, a type, a small number
        assert "shared" not in one.message
    assert done.communication["downlink"]["parameters"] == 4 * 3 * SIZE


def test_stcs_downlink_can_be_left_as_it_is(simulated):
    done = simulated(over("stc", downlink="none", rounds=3))
    assert all("shared" in one.message for one in done.tap.select("down", "train"))
    assert set(done.server_state()) == {"shared", "samples"}


def test_stcs_own_downlink_is_the_same_downlink(simulated):
    auto, same = simulated(over("stc", rounds=3)), simulated(over("stc", downlink="same", rounds=3))
    assert auto.finished.summary["state_digest"] == same.finished.summary["state_digest"]


def test_the_downlink_is_in_the_hash_only_where_it_is_chosen():
    plain, chosen = ({"name": "eden"}, {"name": "eden", "downlink": "same"})
    first, second = (Experiment.parse({"method": "fedavg", "compress": table}) for table in (plain, chosen))
    assert "downlink" not in first.plain()["compress"]
    assert second.plain()["compress"]["downlink"] == "same"


@pytest.mark.parametrize("values", [{"name": "eden", "bits": 1}, {"name": "qsgd", "bits": 4}, {"name": "top-k-ef"}])
def test_the_number_of_workers_does_not_matter(tiny, tmp_path, values):
    experiment = tiny(METHODS["fedavg"] | {"compress": {**values, "downlink": "same"}, "fraction": 0.5, "rounds": 3})
    one, two = (run(experiment, out=tmp_path / str(workers), workers=workers).summary for workers in (1, 2))
    assert one["state_digest"] == two["state_digest"]
    assert one["communication"] == two["communication"]


# Losses


@pytest.fixture
def forgetful(stored_by):
    """After round 1 the unlucky client's private state is gone."""

    class Forgetful(ClientStore):
        def base(self, client, location):
            return super().base(client, Location() if location.file == "000002-1.safetensors" else location)

    return stored_by(Forgetful)


@pytest.mark.parametrize("method", ["lg-fedavg", "refprotofl"])
@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_lost_its_store_continues(simulate, forgetful, name, method):
    went_on = simulate(over(name, method), engine=forgetful)
    assert went_on.events("client-failed") == []
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 2, 3]] * 3
    if name == "ef21":
        memory = went_on.server_state()["memory"]
        assert all(same_bits(memory[client], went_on.client_state(client)["memory"]) for client in range(4))
    if name in ("ef21", "stc"):
        assert (2, UNLUCKY) in [(one.round, one.client) for one in went_on.tap.select("down", "join")]


@pytest.mark.parametrize("method", ["lg-fedavg", "refprotofl"])
@pytest.mark.parametrize("name", DOWN)
def test_a_client_that_lost_its_store_gets_the_whole_vector_again(simulate, forgetful, name, method):
    went_on = simulate(over(name, method, downlink="same"), engine=forgetful)
    assert went_on.events("client-failed") == []
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 2, 3]] * 3
    assert (2, UNLUCKY) in [(one.round, one.client) for one in went_on.tap.select("down", "join")]
    field, verb = ("adapter", "prototypes") if method == "refprotofl" else ("shared", "train")
    sent = [one.message for one in went_on.tap.select("down", verb) if (one.round, one.client) == (2, UNLUCKY)]
    assert [field in message for message in sent] == [False, True]


def test_with_ef21_a_client_whose_answer_did_not_arrive_starts_anew_on_both_sides(simulate, garbling):
    spoilt = garbling(UNLUCKY, 2, "train", lambda _: encode({"other": 1}))
    went_on = simulate(over("ef21"), engine=spoilt)
    (failure,) = went_on.events("client-failed")
    assert (failure["round"], failure["client"]) == (2, UNLUCKY)
    memory = went_on.server_state()["memory"]
    for client in range(4):
        assert same_bits(memory[client], went_on.client_state(client)["memory"])


# A stop and a resume


class Stop(Exception):
    pass


class Stopping(Callback):
    def on_round(self, event, accuracy):
        if event["round"] == 2:
            raise Stop


@pytest.mark.parametrize("method", ["lg-fedavg", "fednova", "refprotofl"])
@pytest.mark.parametrize("downlink", ["auto", "same"])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_ends_where_an_undisturbed_one_does(simulated, tiny, tmp_path, name, method, downlink):
    values = over(name, method, rounds=4, fraction=0.75, downlink=downlink)
    with pytest.raises(Stop):
        run(tiny(values), out=tmp_path, callback=Stopping())
    resumed = run(tiny(values), out=tmp_path, resume=True).summary
    undisturbed = simulated(values).finished.summary
    assert resumed["state_digest"] == undisturbed["state_digest"]
    assert resumed["communication"] == undisturbed["communication"]


# What is refused


@pytest.mark.parametrize("method", ["local", "fedproto", "fedgh"])
def test_a_method_that_sends_no_weights_has_nothing_to_compress(simulate, method):
    with pytest.raises(InputError, match=f"\"top-k\" has nothing to compress: method = '{method}' sends no weights up"):
        simulate({"method": method, "compress": {"name": "top-k"}})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"compress": {"name": "qsgd"}}, "set refprotofl.apud = off"),
        ({"compress": {"name": "qsgd"}, "refprotofl": {"apud": "off", "value-type": "int8"}}, "value-type"),
        ({"compress": {"name": "stc"}, "refprotofl": {"apud": "off", "downlink": "sparse"}}, "downlink"),
        (
            {"compress": {"name": "topk"}},
            "allowed: none, eden, ef21, qsgd, random-k, stc, top-k, top-k-ef or",
        ),
        ({"compress": {"name": "qsgd", "bits": 5}, "method": "fedavg"}, "bits = 5: qsgd takes 8 or 4"),
        ({"compress": {"name": "eden", "bits": 9}}, "1 to 8 with eden"),
        ({"compress": {"downlink": "same"}}, "without a compressor: set compress.name"),
        (
            {"compress": {"name": "eden", "downlink": "same"}, "refprotofl": {"apud": "off", "downlink": "sparse"}},
            'needs refprotofl.downlink = "dense"',
        ),
        ({"compress": {"keep": 0.0}}, "above 0"),
        ({"compress": {"decay": 1.5}}, "0 to 1"),
    ],
)
def test_what_does_not_fit_is_reported_in_a_sentence(values, sentence):
    with pytest.raises(InputError, match=sentence):
        prepare(Experiment.parse(values))


def test_nothing_of_a_compressor_is_kept_without_one(simulated):
    plain = simulated(over("none", rounds=2))
    assert set(plain.server_state()) == {"shared", "samples"}
    assert not {"memory", "shared"} & set(plain.client_state(0))
    assert isinstance(plain.tap.select("up", "train")[0].message["shared"], Tensor)
