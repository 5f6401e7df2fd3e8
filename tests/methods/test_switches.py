"""Every switch of [refprotofl] in a real run of three rounds: it changes what it must, seen from what crossed."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import InputError
from refprotofl.federation.participation import draw_cohort
from refprotofl.methods import apud
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl import masked
from refprotofl.wire import Sparse
from refprotofl.wire.tensors import same_bits

pytestmark = pytest.mark.slow

SIZES = [128 * 8, 8, 80, 10]  # of the tiny model's adapter
SIZE = sum(SIZES)
KEPT = 112  # a tenth
PROTOTYPES = 10 * 8


def uploads(simulation: Any) -> dict[tuple[int, int], Sparse]:
    """The update of each (round, client)."""
    found = {}
    for one in simulation.tap.select("up", "train"):
        update = one.message.get("adapter", one.message.get("change"))
        assert isinstance(update, Sparse)
        found[one.round, one.client] = update
    return found


def broadcasts(simulation: Any) -> dict[int, Tensor]:
    """The dense adapter that was sent in each round."""
    sent = simulation.tap.select("down", "prototypes", "train")
    return {one.round: one.message["adapter"] for one in sent if isinstance(one.message.get("adapter"), Tensor)}


def weights(simulation: Any) -> dict[int, float]:
    return {one.client: float(one.message["samples"]) for one in simulation.tap.select("up", "join")}


# The method as the paper has it


def test_by_default_a_round_is_two_exchanges_with_a_tenth_of_the_adapter_up(simulated: Any) -> None:
    base = simulated()
    rounds = [(one.round, one.direction, one.phase) for one in base.tap.crossings if one.client == 2]
    expected = [(1, "down", "join"), (1, "up", "join")]
    for number in (1, 2, 3):
        expected += [(number, way, phase) for phase in ("prototypes", "train") for way in ("down", "up")]
    assert rounds == [*expected, (3, "down", "evaluate"), (3, "up", "evaluate")]
    times = 4 * 3
    assert base.communication["uplink"] == {
        "parameters": KEPT * times, "prototype_values": PROTOTYPES * times, "other_values": 0, "messages": 2 * times,
        "payload_bytes": sum(len(one.data) for one in base.tap.select("up", "prototypes", "train")),
    }  # fmt: skip
    assert base.communication["downlink"]["parameters"] == SIZE * times
    assert base.communication["downlink"]["prototype_values"] == PROTOTYPES * times
    for one in base.tap.select("down", "train"):
        assert list(one.message) == ["anchors"]  # the adapter came with the first phase
    assert base.communication["one_off"]["payload_bytes"] == sum(
        len(one.data) for one in base.tap.crossings if one.phase == "join"
    )


def test_the_next_broadcast_is_the_average_over_senders(simulated: Any) -> None:
    base = simulated({"rounds": 2})
    assert average(base, 1, "senders").allclose(broadcasts(base)[2], atol=1e-6)
    assert not average(base, 1, "participants").allclose(broadcasts(base)[2], atol=1e-4)


def test_normalise_participants_damps_what_few_clients_send(simulated: Any) -> None:
    damped = simulated({"rounds": 2}, normalise="participants")
    assert average(damped, 1, "participants").allclose(broadcasts(damped)[2], atol=1e-6)


def average(simulation: Any, number: int, normalise: str) -> Tensor:
    """Eq. (7) a coordinate at a time, from the messages alone."""
    reference = broadcasts(simulation)[number].double()
    samples, result = weights(simulation), broadcasts(simulation)[number].double()
    sent: dict[int, list[tuple[float, float]]] = {}
    for (when, client), update in uploads(simulation).items():
        if when == number:
            for index, value in zip(update.indices.tolist(), update.values.tolist(), strict=True):
                sent.setdefault(index, []).append((samples[client], value))
    for index, values in sent.items():
        total = sum(weight for weight, _ in values) if normalise == "senders" else sum(samples.values())
        result[index] += sum(weight * (value - float(reference[index])) for weight, value in values) / total
    return result.float()


# Erpa, align, warm-up, timing


def test_without_erpa_there_are_no_prototypes_and_no_public_set_is_shipped(simulated: Any) -> None:
    off = simulated(erpa="off")
    assert {one.phase for one in off.tap.crossings} == {"join", "train", "evaluate"}
    assert off.communication["uplink"]["prototype_values"] == off.communication["downlink"]["prototype_values"] == 0
    assert all(one.message == {} for one in off.tap.select("down", "join"))
    assert off.communication["downlink"]["parameters"] == SIZE * 12  # `train` carries the adapter
    assert off.finished.summary["accuracy"]["personal_prototype"] is None


def test_an_alignment_of_weight_zero_trains_like_no_alignment_to_the_last_bit(simulated: Any) -> None:
    zero, off, one = simulated(align=0.0), simulated(erpa=False), simulated(align=1.0)
    assert same_bits(zero.adapter(), off.adapter())
    assert not same_bits(one.adapter(), off.adapter())
    assert zero.communication["uplink"]["prototype_values"] > 0


def test_warm_up_rounds_are_rounds_without_prototypes(simulated: Any) -> None:
    warm, off = simulated(warmup_rounds=2), simulated(erpa=False)
    prototypes = [one for one in warm.tap.crossings if one.phase == "prototypes"]
    assert {one.round for one in prototypes} == {3}
    assert {one.round for one in warm.tap.select("down", "train") if "anchors" in one.message} == {3}
    warm_uploads, off_uploads = uploads(warm), uploads(off)
    for number, client in warm_uploads:
        assert (warm_uploads[number, client] == off_uploads[number, client]) == (number < 3)


def test_post_train_timing_takes_one_exchange_a_round_and_anchors_of_the_round_before(simulated: Any) -> None:
    post = simulated({"public": {"coverage": 0.5}}, timing="post-train")
    after_joining = [one for one in post.tap.crossings if one.phase not in ("join", "evaluate")]
    assert {one.phase for one in after_joining} == {"train"}
    assert len(after_joining) == 2 * 4 * 3
    sent = {
        number: [one.message for one in post.tap.select("up", "train") if one.round == number] for number in (1, 2, 3)
    }
    got = {
        number: [one.message for one in post.tap.select("down", "train") if one.round == number] for number in (1, 2, 3)
    }
    assert not any("anchors" in message for message in got[1])
    covered = post.tap.select("down", "join")[0].message["labels"].unique().tolist()
    for number in (2, 3):
        external = torch.stack([message["public_prototypes"] for message in sent[number - 1]]).double().mean(dim=0)
        for message in got[number]:
            classes = message["classes"].tolist() if "classes" in message else list(range(10))
            rows = [classes.index(one) for one in covered]
            assert message["anchors"][rows].allclose(external.float(), atol=1e-6)
    assert post.communication["uplink"]["messages"] == 4 * 3


@pytest.mark.parametrize("coverage", [0.0, 0.5])
def test_uncovered_classes_get_the_mean_of_the_clients_prototypes_weighted_by_their_counts(
    simulated: Any, coverage: float
) -> None:
    mixed = simulated({"rounds": 1, "public": {"coverage": coverage}})
    messages = [one.message for one in mixed.tap.select("up", "prototypes")]
    down = mixed.tap.select("down", "train")[0].message
    classes = down["classes"].tolist() if "classes" in down else list(range(10))
    checked = 0
    for row, number in enumerate(classes):
        total, count = torch.zeros(8).double(), 0
        for message in messages:
            held = message["classes"].tolist()
            if number in held:
                place = held.index(number)
                samples = int(message["counts"][place])
                total += samples * message["local_prototypes"][place].double()
                count += samples
        if count:
            assert down["anchors"][row].allclose((total / count).float(), atol=1e-6)
            checked += 1
    assert checked == 10 - round(10 * coverage)


# Apud, select, scope, error feedback, value types


def test_without_apud_the_whole_adapter_goes(simulated: Any) -> None:
    whole = simulated({"rounds": 2}, apud="off")
    assert whole.communication["uplink"]["parameters"] == SIZE * 4 * 2
    assert {len(update.indices) for update in uploads(whole).values()} == {SIZE}
    samples, first = weights(whole), [uploads(whole)[1, client].values.double() for client in range(4)]
    mean = sum(samples[client] * first[client] for client in range(4)) / sum(samples.values())
    assert mean.float().allclose(broadcasts(whole)[2], atol=1e-6)  # type: ignore[union-attr]


@pytest.mark.parametrize(("keep", "number"), [(0.0001, 1), (0.5, SIZE // 2), (1, SIZE)])
def test_keep_is_the_share_that_goes(simulated: Any, keep: float, number: int) -> None:
    assert simulated({"rounds": 1}, keep=keep).communication["uplink"]["parameters"] == 4 * number


@pytest.mark.parametrize("select", ["random", "probabilistic"])
def test_what_is_drawn_is_drawn_from_the_seed(simulate: Any, simulated: Any, select: str) -> None:
    once, again = simulated({"rounds": 1}, select=select), simulate({"rounds": 1}, select=select)
    other = simulate({"rounds": 1, "seed": 1}, select=select)
    assert uploads(once) == uploads(again)
    assert uploads(once)[1, 0].indices.tolist() != uploads(other)[1, 0].indices.tolist()


def test_top_sends_what_moved_most_and_random_and_probabilistic_do_not(simulated: Any) -> None:
    masks = {}
    for select in ("top", "random", "probabilistic"):
        chosen = simulated({"rounds": 1}, select=select)
        masks[select] = {client: set(uploads(chosen)[1, client].indices.tolist()) for client in range(4)}
        assert {len(mask) for mask in masks[select].values()} == {KEPT}
    everything = simulated({"rounds": 1}, keep=1.0)
    whole, reference = uploads(everything), broadcasts(everything)[1]
    for client in range(4):
        moved = (whole[1, client].values - reference).abs()
        ranked = sorted(range(SIZE), key=lambda index: (-moved[index].item(), index))
        assert masks["top"][client] == set(ranked[:KEPT])
        likely = moved[list(masks["probabilistic"][client])].sum()
        assert moved[list(masks["random"][client])].sum() < likely < moved[ranked[:KEPT]].sum()
    assert masks["random"][0] != masks["random"][1]


def test_per_tensor_selection_sends_from_every_tensor(simulated: Any) -> None:
    scoped = simulated({"rounds": 1}, selection_scope="per-tensor")
    for update in uploads(scoped).values():
        mask = torch.zeros(SIZE, dtype=torch.bool)
        mask[update.indices] = True
        assert [int(part.sum()) for part in mask.split(SIZES)] == apud.split_by_tensor(KEPT, SIZES)


def test_error_feedback_keeps_on_the_client_what_was_not_sent(simulated: Any) -> None:
    fed = simulated({"rounds": 2}, error_feedback="ef", normalise="participants")
    none = simulated({"rounds": 2})
    memories = {client: fed.client_state(client)["memory"] for client in range(4)}
    for client, memory in memories.items():
        assert memory[uploads(fed)[2, client].indices].abs().max() < 1e-7  # what was just sent is settled
        assert memory.abs().max() > 0
    assert uploads(fed)[1, 0] == uploads(none)[1, 0]
    assert uploads(fed)[2, 0] != uploads(none)[2, 0]


def test_ef21_keeps_the_same_memory_on_both_sides(simulated: Any) -> None:
    fed = simulated({"fraction": 0.5, "rounds": 4}, error_feedback="ef21", normalise="participants")
    server = fed.server_state()["memory"]
    for client in fed.checkpoint().records:
        assert same_bits(server[client], fed.client_state(client)["memory"])
    reference, result = broadcasts(fed)[4], fed.adapter()
    samples = fed.server_state()["samples"].double()
    step = (samples.unsqueeze(1) * server.double()).sum(dim=0) / samples.sum()
    assert result.allclose((reference.double() + step).float(), atol=1e-6)


def test_narrower_values_shrink_the_uplink_and_nothing_else(simulated: Any) -> None:
    runs = {kind: simulated({"rounds": 2}, value_type=kind) for kind in ("float32", "float16", "bfloat16", "int8")}
    bytes_up = {kind: run.communication["uplink"]["payload_bytes"] for kind, run in runs.items()}
    # Masks differ from the second round on, so the lengths agree only roughly.
    assert bytes_up["float32"] - bytes_up["float16"] == pytest.approx(2 * KEPT * 8, rel=0.1)
    assert bytes_up["float16"] == pytest.approx(bytes_up["bfloat16"], rel=0.01)
    assert bytes_up["float16"] - bytes_up["int8"] == pytest.approx(KEPT * 8, rel=0.2)
    for kind, run in runs.items():
        assert {str(update.values.dtype) for update in uploads(run).values()} == {f"torch.{kind}"}
        assert run.communication["uplink"]["parameters"] == KEPT * 8
        assert run.communication["downlink"] == runs["float32"].communication["downlink"]
        assert run.adapter().allclose(runs["float32"].adapter(), atol=0.02)


# Downlink


def test_a_sparse_downlink_gives_the_same_bits_for_fewer_bytes(simulated: Any) -> None:
    dense, sparse = simulated(), simulated(downlink="sparse")
    assert same_bits(dense.adapter(), sparse.adapter())
    assert dense.finished.summary["accuracy"] == sparse.finished.summary["accuracy"]
    assert uploads(dense) == uploads(sparse)
    assert sparse.communication["downlink"]["payload_bytes"] < 0.8 * dense.communication["downlink"]["payload_bytes"]
    for one in sparse.tap.select("down", "prototypes"):
        assert isinstance(one.message["adapter"], Tensor if one.round == 1 else Sparse)


@pytest.mark.parametrize("erpa", [True, False])
def test_a_client_that_missed_a_round_gets_the_dense_adapter_and_others_get_the_changes(
    simulated: Any, erpa: bool
) -> None:
    over = {"fraction": 0.5, "rounds": 6}
    dense, sparse = simulated(over, erpa=erpa), simulated(over, downlink="sparse", erpa=erpa)
    assert same_bits(dense.adapter(), sparse.adapter())
    seen = set()
    for one in sparse.tap.select("down", "prototypes" if erpa else "train"):
        there_before = one.round > 1 and one.client in draw_cohort(sparse.experiment, one.round - 1)
        assert isinstance(one.message["adapter"], Sparse) == there_before
        seen.add(there_before)
    assert seen == {True, False}


# The uplink budget


@pytest.mark.parametrize(
    ("timing", "budget", "switches"),
    [
        ("pre-train", "800 B", {}),
        ("post-train", 1000, {"select": "probabilistic"}),
        ("pre-train", "1.2 kB", {"select": "random", "selection_scope": "per-tensor", "value_type": "int8"}),
    ],
)
def test_every_round_of_every_client_fits_the_budget_and_one_more_value_would_not(
    simulate: Any, monkeypatch: pytest.MonkeyPatch, timing: str, budget: object, switches: dict[str, Any]
) -> None:
    composed = []
    honest = masked.compose

    def recorded(*arguments: Any) -> Any:
        result = honest(*arguments)
        composed.append((arguments, result[0]))
        return result

    monkeypatch.setattr(masked, "compose", recorded)
    thrifty = simulate({"public": {"coverage": 0.5}}, timing=timing, uplink_budget=budget, **switches)
    limit = thrifty.experiment.refprotofl.uplink_budget
    for number, client in itertools.product((1, 2, 3), range(4)):
        assert 0 < thrifty.up(client, number) <= limit
    assert len(composed) == 12
    for (table, sizes, local, reference, _, stream, extra, spent, length), message in composed:
        assert spent + length(message) <= limit
        keep = len(masked.unpack(table, ValidatedMessage(message), reference).indices)
        assert keep < SIZE
        mask = masked.choose(table, sizes, local, reference, keep + 1, stream())
        larger = {**extra, **masked.pack(table, local, reference, mask)[0]}
        assert spent + length(larger) > limit


@pytest.mark.parametrize("switches", [{}, {"value_type": "int8"}, {"erpa": False}])
@pytest.mark.parametrize("coverage", [1.0, 0.3])
def test_too_small_a_budget_is_an_error_that_names_the_least_which_works(
    simulated: Any, switches: dict[str, Any], coverage: float
) -> None:
    over = {"rounds": 1, "public": {"coverage": coverage}}
    with pytest.raises(InputError, match=r"uplink-budget = 10 bytes is too small") as refusal:
        simulated(over, uplink_budget=10, **switches)
    least = int(str(refusal.value).split(" take ")[1].split(" bytes")[0])
    with pytest.raises(InputError, match=f"{least} bytes, which is the least"):
        simulated(over, uplink_budget=least - 1, **switches)
    tight = simulated(over, uplink_budget=least, **switches)
    assert tight.events("client-failed") == []
    for client in range(4):
        assert 0 < tight.up(client, 1) <= least
    assert all(len(update.indices) >= 1 for update in uploads(tight).values())
