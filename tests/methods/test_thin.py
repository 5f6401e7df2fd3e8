"""Thin: 1 bit per weight in each direction, and server and clients agree on what is held."""

import math
import re
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
import torch

from refprotofl.core.errors import BudgetError, GuardError, InputError, RunError
from refprotofl.core.parts import ALL
from refprotofl.core.state import tensor_of
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.experiment import Experiment
from refprotofl.export.trained_model import load_trained
from refprotofl.federation import Callback, run
from refprotofl.methods.base.schema import Refused, Scope, ValidatedMessage
from refprotofl.methods.builtin.thin import Options, Thin, codes
from refprotofl.methods.builtin.thin.quantisation import Coded
from refprotofl.methods.builtin.thin.sending import Differences
from refprotofl.methods.common.rotated_quantiser import number_of_blocks
from refprotofl.models.build import build_model
from refprotofl.wire import encode

pytestmark = pytest.mark.slow

UNLUCKY = 2


@pytest.fixture
def simulate_thin(simulate):
    def simulate_thin(*, engine=None, finetune=MappingProxyType({"epochs": 3}), **over):
        keys = {"method": "thin", "first-weights": "seed", "finetune": dict(finetune), **over}
        return simulate(keys, **({"engine": engine} if engine else {}))

    return simulate_thin


@pytest.fixture
def scope_of():
    """Make the scope of a code without a run; the model has some 9,000 weights."""

    def scope_of(table):
        known = {"class-names": list("0123456789"), "shape": [1, 8, 8], "mean": [0.5], "std": [0.5]}
        tables = {"thin": table, "input": known, "model": {"name": "mlp", "norm": "none", "embedding": 8}}
        experiment = Experiment.parse({"method": "thin", "dataset": "digits", **tables})
        return Scope(experiment, build_model(experiment), ALL, experiment.thin)

    return scope_of


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


@pytest.mark.parametrize("over", [{}, {"clients": 6, "fraction": 0.5}])
def test_first_weights_that_are_sent_cost_their_bytes_once_and_change_nothing_else(simulate_thin, over):
    free, sent = (simulate_thin(**{"first-weights": one}, **over) for one in ("seed", "sent"))
    assert sent.server_state()["exact"].equal(free.server_state()["exact"])
    assert sent.finished.summary["accuracy"] == free.finished.summary["accuracy"]
    seen = [one.finished.summary["communication"] for one in (free, sent)]
    assert seen[0]["uplink"] == seen[1]["uplink"]
    assert seen[0]["downlink"] == seen[1]["downlink"]
    joined = seen[0]["one_off"]["messages"] / 2
    more = seen[1]["one_off"]["payload_bytes"] - seen[0]["one_off"]["payload_bytes"]
    assert more == pytest.approx(4 * parameters(sent) * joined, abs=30 * joined)


def coded_bytes(message):
    """Return the bytes of code and scales together, which are the same under every code."""
    return len(message.tensor("code")) + 2 * len(message.tensor("scales"))


def bytes_of(size, bits):
    return math.ceil(size * bits / 8) + 2 * number_of_blocks(size)


@pytest.mark.parametrize("code", codes.CODES)
def test_the_cost_counts_as_many_scales_as_a_code_has(scope_of, code):
    scope = scope_of({"code": code})
    symbols = Thin.cost(scope.experiment).symbols
    assert symbols is not None
    assert symbols["B"](scope.shared) == codes.number_of_scales(scope)


@pytest.mark.parametrize("code", codes.CODES)
def test_a_bit_a_weight_goes_up_and_down(simulate_thin, code):
    done = simulate_thin(thin={"code": code})
    size = parameters(done)
    for one in (*done.tap.select("up", "train"), *done.tap.select("down", "finetune")):
        assert coded_bytes(one.message) == bytes_of(size, 1)
    assert done.communication["uplink"]["parameters"] == 3 * 4 * size


def test_clients_hold_what_the_server_thinks_they_hold(simulate_thin):
    done = simulate_thin()
    server = done.server_state()
    for client in range(4):
        state = done.client_state(client)
        assert torch.equal(tensor_of(state, "held"), tensor_of(server, "shared"))
        assert state["held_version"] == server["version"] == 3


def test_a_client_that_missed_rounds_catches_up_by_steps_or_as_a_whole(simulate_thin):
    """Half of the clients take part in a round, so some miss steps; eight steps of one bit are as long as the model."""
    done = simulate_thin(clients=6, fraction=0.5, rounds=8, finetune={})
    size, server = parameters(done), done.server_state()
    missed = [one for one in done.tap.select("down", "train") if "base" in one.message]
    steps = {one.message.whole("version") - one.message.whole("base") for one in missed}
    assert max(steps) > 1
    for one in missed:
        count = one.message.whole("version") - one.message.whole("base")
        assert coded_bytes(one.message) == count * bytes_of(size, 1)
    last = max(one.round for one in missed)
    for one in missed:
        if one.round == last:
            assert torch.equal(tensor_of(done.client_state(one.client), "held"), tensor_of(server, "shared"))


def test_the_whole_model_is_sent_where_that_is_shorter(simulate_thin):
    done = simulate_thin(clients=6, fraction=0.34, thin={"down-bits": 8.0}, finetune={"epochs": 1})
    whole = [one for one in done.tap.select("down", "finetune") if "code" in one.message and "base" not in one.message]
    assert whole  # two missed steps of 8 bits take longer than all of it in 8
    shared = tensor_of(done.server_state(), "shared")
    for one in whole:
        held = tensor_of(done.client_state(one.client), "held")
        assert 0 < float((held - shared).norm() / shared.norm()) < 0.01


@pytest.mark.parametrize(("bits", "code"), [(0.01, "rotated"), (0.3, "levels"), (1.0, "sparse"), (5.0, "rotated")])
def test_as_many_steps_are_kept_as_take_no_longer_than_the_whole(scope_of, bits, code):
    """Scales and all: at a hundredth of a bit a step is as much of them as of code."""
    scope = scope_of({"down-bits": bits, "code": code})
    most, length, scales = codes.most_steps(scope), down_length(scope), codes.number_of_scales(scope)

    def message(codes_: int, scales_: int, **seen: int) -> int:
        tensors = {"code": torch.zeros(codes_, dtype=torch.uint8), "scales": torch.zeros(scales_, dtype=torch.bfloat16)}
        return len(encode({**tensors, **seen, "version": 9}))

    whole = message(codes.whole_length(scope), scales)
    assert (
        message(most * length, most * scales, base=1)
        <= whole
        < message((most + 1) * length, (most + 1) * scales, base=1)
    )


def test_within_a_budget_a_client_that_missed_rounds_comes_nearer_with_every_message(scope_of):
    """One code in each message takes off two thirds of the squared error or so, whatever was missed."""
    budget = scope_of({}).shared // 8 + 200
    scope = scope_of({"downlink-budget": budget})
    initial = scope.model.read(scope.parts)
    exact = initial + torch.randn(len(initial), generator=torch.Generator().manual_seed(0))
    sending = Differences(scope, initial)
    for _ in range(3):
        sending.advance(exact, anchored=False)
        sending.requests({})(0)
        sending.took(0)  # who is there in every round
    errors = []
    for _ in range(4):
        sending.advance(exact, anchored=False)
        message = sending.requests({})(1)
        sending.took(1)
        assert len(encode(message)) <= budget
        errors.append(float((sending.vectors[sending.holds[1]] - exact).square().sum()))
    assert all(after < 0.7 * before for before, after in pairwise([float(len(initial)), *errors]))
    assert len(sending.vectors) == 4  # that of nobody yet, of the two now, and of one of them before


def test_within_a_budget_the_server_knows_what_everyone_holds(simulate_thin):
    done = simulate_thin(clients=6, fraction=0.5, rounds=6, thin={"downlink-budget": 2001})
    server = done.server_state()
    vectors, versions, holds = (tensor_of(server, name) for name in ("vectors", "versions", "holds"))
    down = done.tap.select("down", "train", "finetune")
    assert max(len(one.data) for one in down) <= 2001
    assert any(one.message.whole("version") - one.message.whole("base") > 2 for one in down if "base" in one.message)
    for client in range(6):
        state = done.client_state(client)
        assert torch.equal(tensor_of(state, "held"), vectors[holds[client]])
        assert state["held_version"] == int(versions[holds[client]])


@pytest.mark.parametrize("feedback", [True, False])
def test_what_a_code_leaves_out_is_owed(simulate_thin, feedback):
    done = simulate_thin(thin={"feedback": feedback, "server-epochs": 0}, finetune={})
    assert ("rest" in done.client_state(0)) is feedback
    if feedback:
        assert tensor_of(done.client_state(0), "rest").norm() > 0


def decoded_mean(done, round: int, unbiased: bool) -> torch.Tensor:
    """Return the uploads of a round, read with or without bias, averaged by their samples."""
    options, size = done.resolved.thin, parameters(done)
    weights = tensor_of(done.server_state(), "samples").double()
    total = torch.zeros(size, dtype=torch.float64)
    for one in done.tap.select("up", "train"):
        if one.round == round:
            draw = codes.sign_draw(done.resolved, "change", round, one.client)
            coded = Coded(one.message.tensor("code"), one.message.tensor("scales"))
            said = codes.decoded(options, coded, size, draw, unbiased)
            total += weights[one.client] / weights.sum() * said.double()
    return total


def test_the_last_round_is_read_without_bias(simulate_thin):
    """Nothing follows that would repay what levels at the means of cells leave out."""
    done = simulate_thin(rounds=1, thin={"code": "rotated", "server-epochs": 0}, finetune={})
    moved = tensor_of(done.server_state(), "exact") - build_model(done.resolved).read(("backbone", "feature", "head"))
    assert moved.double() == pytest.approx(decoded_mean(done, 1, unbiased=True), abs=1e-6)
    assert float(decoded_mean(done, 1, unbiased=False).norm()) < 0.9 * float(moved.norm())


@pytest.mark.parametrize("feedback", [True, False])
def test_an_earlier_round_is_read_without_bias_if_nothing_is_owed(simulate_thin, feedback):
    switches = {"code": "rotated", "server-epochs": 0, "feedback": feedback, "down-bits": 8.0}
    done = simulate_thin(rounds=2, thin=switches, finetune={})
    step = next(one.message for one in done.tap.select("down", "train") if one.round == 2)
    coded, draw = Coded(step.tensor("code"), step.tensor("scales")), codes.sign_draw(done.resolved, "step", 1)
    said = codes.decoded(done.resolved.thin, coded, parameters(done), draw)
    meant = decoded_mean(done, 1, unbiased=not feedback)
    assert float((said - meant).norm() / meant.norm()) < 0.02


def test_the_last_upload_may_have_another_rate(simulate_thin):
    done = simulate_thin(thin={"last-up-bits": 2.5}, finetune={})
    size = parameters(done)
    for one in done.tap.select("up", "train"):
        assert coded_bytes(one.message) == bytes_of(size, 2.5 if one.round == 3 else 1)
    assert done.communication["uplink"]["parameters"] == 3 * 4 * size
    within = simulate_thin(thin={"last-up-bits": 2.5, "uplink-budget": 700}, finetune={})
    assert {len(one.data) for one in within.tap.select("up", "train")} == {700}


def test_a_rounds_code_has_that_rounds_length(scope_of):
    scope = scope_of({"code": "rotated", "last-up-bits": 2.0})
    first, last = codes.up_length(scope, 1), codes.up_length(scope, scope.experiment.rounds)
    scales = torch.ones(codes.number_of_scales(scope), dtype=torch.bfloat16)
    message = ValidatedMessage({"code": torch.zeros(last, dtype=torch.uint8), "scales": scales})
    draw = codes.sign_draw(scope.experiment, "change", 1, 0)
    assert len(codes.read_change(scope, message, last, draw)) == scope.shared
    with pytest.raises(Refused, match=f"code has {last} bytes, not {first}"):
        codes.read_change(scope, message, first, draw)


def down_length(scope):
    return codes.down_length(scope, anchored=False)


@pytest.mark.parametrize(("budget", "code"), [(300, "rotated"), (777, "levels"), (2001, "rotated"), (901, "sparse")])
def test_budgets_hold_to_the_byte(simulate_thin, budget, code):
    done = simulate_thin(thin={"uplink-budget": budget, "downlink-budget": budget, "code": code})
    up = {len(one.data) for one in done.tap.select("up", "train")}
    down = {len(one.data) for one in done.tap.select("down", "train", "finetune")}
    assert max(up) == budget  # used up
    assert max(down) <= budget
    assert budget - max(down) <= 2  # the numbers of version and base may be longer


def test_a_last_step_without_anchors_uses_the_budget_up(simulate_thin):
    done = simulate_thin(thin={"downlink-budget": 2001, "drift": "anchors", "strength": 0.1})
    for phase in ("train", "finetune"):
        longest = max(len(one.data) for one in done.tap.select("down", phase))
        assert 1999 <= longest <= 2001


def found_in(problem, pattern):
    found = re.search(pattern, str(problem))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("key", ["up-bits", "down-bits", "last-up-bits"])
def test_bits_too_few_for_any_code_are_refused_before_anyone_trains(simulate_thin, key):
    with pytest.raises(BudgetError, match=rf"thin.{key} = 0.001 is too little: of [\d,]+ weights") as seen:
        simulate_thin(thin={key: 0.001})
    enough = float(found_in(seen.value, r"use ([\d.]+) or more"))
    assert simulate_thin(thin={key: enough}).events("client-failed") == []


@pytest.mark.parametrize("code", ["levels", "sparse"])
@pytest.mark.parametrize("key", ["uplink-budget", "downlink-budget"])
def test_the_bytes_that_an_error_names_suffice(simulate_thin, key, code):
    with pytest.raises(BudgetError, match=rf"thin.{key} = 5 bytes is too small") as seen:
        simulate_thin(thin={key: 5, "code": code})
    enough = int(found_in(seen.value, r"takes (\d+) bytes at least"))
    assert simulate_thin(thin={key: enough, "code": code}).events("client-failed") == []


@pytest.mark.parametrize("code", ["levels", "rotated", "sparse"])
def test_a_budget_buys_eight_bits_a_weight_at_most(scope_of, code):
    whole = scope_of({"code": code, "up-bits": 8.0, "down-bits": 8.0})
    rich = scope_of({"code": code, "uplink-budget": 10_000_000, "downlink-budget": 10_000_000})
    assert (codes.up_length(rich, 1), down_length(rich)) == (codes.up_length(whole, 1), down_length(whole))


@pytest.mark.parametrize("code", ["rotated", "sparse"])
def test_other_codes_keep_everyone_of_one_mind(simulate_thin, code):
    done = simulate_thin(thin={"code": code})
    plain = simulate_thin()
    assert done.events("client-failed") == []
    assert done.communication["uplink"]["payload_bytes"] == plain.communication["uplink"]["payload_bytes"]
    for client in range(4):
        assert torch.equal(tensor_of(done.client_state(client), "held"), tensor_of(done.server_state(), "shared"))


def test_the_accuracy_as_held_is_a_fact(simulate_thin):
    """In 8 bits they hold what the server has."""
    done = simulate_thin(thin={"down-bits": 8.0}, finetune={"epochs": 1})
    (scored,) = done.events("evaluation")
    assert scored["facts"]["accuracy_as_held"] == pytest.approx(scored["accuracy"]["global"], abs=0.05)


def test_cooling_makes_later_rounds_move_less(simulate_thin):
    options = {"server-epochs": 0, "feedback": False}
    warm, cold = (simulate_thin(thin={**options, "cooling": cooling}, finetune={}) for cooling in (1.0, 0.01))
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


@pytest.mark.parametrize(("code", "budget"), [("rotated", 100), ("levels", 150)])
def test_a_budget_of_a_few_bytes_says_something(simulate_thin, code, budget):
    done = simulate_thin(thin={"code": code, "uplink-budget": budget, "server-epochs": 0}, finetune={})
    moved = tensor_of(done.server_state(), "exact") - build_model(done.resolved).read(("backbone", "feature", "head"))
    assert moved.any()


@pytest.mark.parametrize("code", ["levels", "sparse"])
def test_a_budget_in_which_a_code_says_nothing_is_refused(scope_of, code):
    def length(budget: int) -> int:
        return codes.up_length(scope_of({"code": code, "uplink-budget": budget}), 1)

    with pytest.raises(InputError, match="too small") as refusal:
        length(10)
    least = int(re.findall(r"(\d+) bytes at least", str(refusal.value))[0])
    assert length(least) == codes.CODES[code].least(scope_of({}).shared) > 4
    with pytest.raises(InputError, match="too small"):
        length(least - 1)


def test_a_code_that_says_nothing_is_noticed():
    with pytest.raises(GuardError, match="says nothing of a change that is not zero"):
        codes.encode_change(Options(code="levels"), torch.ones(10), 3, lambda: np.random.default_rng(0))


def test_each_client_ends_with_a_model_of_its_own(simulate_thin):
    done = simulate_thin(train={"batch-size": 16, "lr": 0.05})
    server = done.server_state()
    for client in range(4):
        own = tensor_of(done.client_state(client), "own")
        trained = load_trained(done.folder, client)
        assert torch.equal(trained.model.read(("backbone", "feature", "head")), own)
    assert not torch.equal(own, tensor_of(server, "exact"))


def test_a_client_that_was_not_in_the_last_round_ends_with_one_too(simulate_thin):
    done = simulate_thin(clients=6, fraction=0.5, rounds=4)
    joined = {client for client in range(6) if tensor_of(done.server_state(), "samples")[client]}
    in_last = {one.client for one in done.tap.select("up", "train") if one.round == 4}
    assert len(in_last) < len(joined)
    assert {one.client for one in done.tap.select("down", "finetune")} == joined
    for client in joined:
        state = done.client_state(client)
        assert state["own_round"] == 4
        assert torch.equal(tensor_of(state, "held"), tensor_of(done.server_state(), "shared"))
    sent = sum(len(one.data) for one in done.tap.select("down", "train", "finetune"))
    assert done.communication["downlink"]["payload_bytes"] == sent


def test_with_no_samples_to_choose_by_the_common_model_stays(simulate_thin):
    done = simulate_thin(finetune={"epochs": 1, "validation": 1000})
    state = done.client_state(0)
    assert torch.equal(tensor_of(state, "own"), tensor_of(state, "held"))


def test_a_smaller_rate_is_for_tuning_alone(simulate_thin):
    options = Options.model_validate({"cooling": 0.5})
    assert options.cooled(0.2, round=3) == pytest.approx(0.05)
    full, slow = simulate_thin(), simulate_thin(finetune={"epochs": 3, "rate": 0.1})
    assert torch.equal(tensor_of(full.server_state(), "exact"), tensor_of(slow.server_state(), "exact"))
    moved = [
        sum(
            float((tensor_of(done.client_state(client), "own") - tensor_of(done.client_state(client), "held")).norm())
            for client in range(4)
        )
        for done in (slow, full)
    ]
    assert 0 < moved[0] < moved[1]


def test_without_tuning_there_is_no_last_step(simulate_thin):
    done = simulate_thin(finetune={})
    assert not done.tap.select("down", "finetune")
    summary = done.finished.summary["accuracy"]
    assert summary["personal"] == pytest.approx(summary["global"])


@pytest.mark.parametrize("drift", ["proximal", "anchors"])
def test_drift_is_held(simulate_thin, drift):
    free = simulate_thin(thin={"strength": 1.0})
    held = simulate_thin(thin={"drift": drift, "strength": 1.0})
    assert free.finished.summary["state_digest"] != held.finished.summary["state_digest"]
    anchors = ["anchors" in one.message for one in held.tap.select("down", "train")]
    assert all(anchors) if drift == "anchors" else not any(anchors)
    assert not any("anchors" in one.message for one in held.tap.select("down", "finetune"))  # which does not use them


def test_the_proximal_pull_makes_changes_smaller(simulate_thin):
    moves = []
    for strength in (0.01, 10.0):
        done = simulate_thin(thin={"drift": "proximal", "strength": strength})
        first = [one.message for one in done.tap.select("up", "train") if one.round == 1]
        moves.append([float(one.tensor("scales").float().norm()) for one in first])
    assert all(held < free for free, held in zip(*moves, strict=True))


@pytest.mark.parametrize("options", [{}, {"downlink-budget": 2001, "drift": "anchors"}], ids=["steps", "differences"])
def test_a_killed_run_resumes_to_the_same_digest(simulate_thin, tmp_path, options):
    class Kill(Callback):
        def on_round(self, event, accuracy):
            if event["round"] == 2:
                raise KeyboardInterrupt

    done = simulate_thin(clients=6, fraction=0.5, thin=options)
    experiment = Experiment.parse(done.experiment.plain())
    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path / "killed", callback=Kill())
    again = run(experiment, out=tmp_path / "killed", resume=True)
    assert again.summary["state_digest"] == done.finished.summary["state_digest"]


def test_a_client_that_lost_its_store_is_sent_the_steps_from_the_start(simulate_thin, stored_by):
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


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"thin": {"pretrain": 1}, "public": {"per-class": 0}}, "thin.pretrain = 1, which is done with the public set"),
        ({"thin": {"server-epochs": 3}, "public": {"per-class": 0}}, "thin.server-epochs = 3, which is done with"),
        ({"thin": {"drift": "proximal", "strength": 0.0}}, "thin.strength = 0, which has no effect"),
    ],
)
def test_what_would_be_without_effect_is_refused(tables, words):
    with pytest.raises(InputError, match=words):
        Experiment.parse({"method": "thin", **tables})


def test_a_default_without_effect_is_reported():
    assert not Thin.warnings(Experiment.parse({"method": "thin"}))
    (seen,) = Thin.warnings(Experiment.parse({"method": "thin", "public": {"per-class": 0}}))
    assert "server trains on nothing" in seen
