"""Rules that bound a client's influence: by hand, against other people's code, and how much of them may be hostile."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import trim_mean

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation.resolution import prepare
from refprotofl.methods import METHODS, erpa
from refprotofl.methods.aggregators import create_aggregator, geometric_median, median
from refprotofl.methods.aggregators.clipped import Clipped
from refprotofl.methods.aggregators.geometric_median import GeometricMedian
from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.aggregators.median import Median
from refprotofl.methods.aggregators.trimmed import Trimmed
from refprotofl.methods.base.aggregation import Aggregator, Normalise, Quorum, Upload, aggregate_uploads, apply_update
from refprotofl.methods.base.schema import SparseVector
from refprotofl.methods.common.prototypes import with_quorum
from refprotofl.wire.tensors import same_bits

pytestmark = pytest.mark.slow

ROBUST: dict[str, Callable[[], Aggregator]] = {
    "median": Median,
    "trimmed": lambda: Trimmed(0.2),
    "clipped": Clipped,
    "geometric-median": GeometricMedian,
}


def upload(change: Sequence[float], places: list[int] | None = None, weight: float = 1, progress: float = 1) -> Upload:
    where = None if places is None else torch.tensor(places, dtype=torch.int64)
    return Upload(torch.tensor(change, dtype=torch.float64), weight, where, progress)


def dense(rows: np.ndarray) -> list[Upload]:
    return [Upload(torch.from_numpy(row), 1.0) for row in rows]


# By hand

# Coordinate 0 of all four, 1 of three, 2 of two, 3 of one, 4 of none; the last one's data weigh most.
MASKED = [
    upload([1, 2, 3, 4], [0, 1, 2, 3]),
    upload([5, 4, 8], [0, 1, 2]),
    upload([3, 9], [0, 1]),
    upload([-100], [0], weight=999),
]


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [
        (Median(), [2, 4, 5.5, 4, 0]),
        (Median("participants"), [2, 3, 2.75, 1, 0]),  # times 4, 3, 2 and 1 of 4
        (Trimmed(0.2), [2, 4, 5.5, 4, 0]),  # of four and three senders one at each end, of fewer none
        (Trimmed(0.4, "participants"), [2, 3, 2.75, 1, 0]),
        (Quorum(Median(), 3), [2, 4, 0, 0, 0]),
        (Quorum(Mean(), 2), [(1 + 5 + 3 - 99900) / 1002, 5, 5.5, 0, 0]),
    ],
)
def test_each_coordinate_is_decided_by_its_senders(aggregator: Aggregator, expected: list[float]) -> None:
    move = aggregate_uploads(aggregator, 5, iter(MASKED))
    assert move.dtype == torch.float64
    assert move.tolist() == pytest.approx(expected, rel=1e-15)
    unmoved = torch.tensor(expected) == 0
    assert bool(move[unmoved].signbit().all())  # so that a value of -0.0 stays


def test_the_share_is_cut_off_at_each_end() -> None:
    sent = [upload([value]) for value in (0, 10, 20, 40, 80, 160, 320, 640, 1280, 1e9)]
    assert aggregate_uploads(Trimmed(0.2), 1, sent).tolist() == [(20 + 40 + 80 + 160 + 320 + 640) / 6]
    assert aggregate_uploads(Trimmed(0.49), 1, sent).tolist() == [(80 + 160) / 2]


def test_long_changes_are_shortened_and_then_averaged_by_data() -> None:
    uploads = [upload([3, 4], [0, 2], weight=1), upload([30, 40], [0, 1], weight=3), upload([0.6, 0.8, 0], weight=4)]
    # To norm 5: the second becomes (3, 4). Coordinate 0: (3 + 9 + 2.4) / 8; 1: (12 + 3.2) / 7; 2: (4 + 0) / 5.
    assert aggregate_uploads(Clipped(5), 3, uploads).tolist() == pytest.approx([1.8, 15.2 / 7, 0.8], rel=1e-12)
    assert aggregate_uploads(Clipped(), 3, uploads).tolist() == pytest.approx(
        [1.8, 15.2 / 7, 0.8], rel=1e-12
    )  # 5 is the median
    assert aggregate_uploads(Clipped(5, "participants"), 3, uploads).tolist() == pytest.approx(
        [1.8, 1.9, 0.5], rel=1e-12
    )


def test_the_geometric_median_of_a_triangle_sees_its_sides_under_120_degrees() -> None:
    # Fermat's point of (0, 0), (4, 0), (2, 2 * 3 ** 0.5): the centre of an equilateral triangle.
    corners = [upload([0, 0]), upload([4, 0]), upload([2, 2 * 3**0.5])]
    assert aggregate_uploads(GeometricMedian(), 2, corners).tolist() == pytest.approx([2, 2 / 3**0.5], rel=1e-6)


def test_of_a_majority_in_one_place_the_geometric_median_is_that_place() -> None:
    uploads = [upload([1, 2]), upload([1, 2]), upload([1, 2]), upload([1e20, 0]), upload([0, -1e30])]
    assert aggregate_uploads(GeometricMedian(), 2, uploads).tolist() == pytest.approx([1, 2], rel=1e-4)


@pytest.mark.parametrize("far", [1e8, 1e15, 1e30, 1e38])
def test_where_all_others_are_equal_no_distance_moves_an_anchor(far: float) -> None:
    """Equal weights of all clients, as in a first round: distances from their median are all 0."""
    experiment = Experiment.parse({"aggregate": "geometric-median", "min-senders": 3})
    prototypes = torch.tensor([[[0.5, -2.0]], [[far, far]], [[0.5, -2.0]], [[0.5, -2.0]]])  # (clients, C, m)
    assert create_aggregator(experiment).merge_public(prototypes).tolist() == [[0.5, -2.0]]


def test_what_is_not_sent_is_0_to_the_geometric_median() -> None:
    masked = [upload([1], [0]), upload([5], [1]), upload([2, 2, 2], [0, 1, 2])]
    whole = [upload([1, 0, 0]), upload([0, 5, 0]), upload([2, 2, 2])]
    move, expected = aggregate_uploads(GeometricMedian(), 4, masked), aggregate_uploads(GeometricMedian(), 3, whole)
    assert torch.allclose(move[:3], expected, rtol=1e-12)
    assert same_bits(move[3], torch.tensor(-0.0, dtype=torch.float64))  # no client sent it


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("uploads", [[], [upload([], [])], [upload([], []), upload([], [])]], ids=["0", "1", "2"])
def test_without_any_value_every_bit_stays(name: str, uploads: list[Upload]) -> None:
    awkward = torch.tensor([-0.0, 1e-45, 0.1])
    assert same_bits(apply_update(awkward, aggregate_uploads(ROBUST[name](), 3, uploads)), awkward)


@pytest.mark.parametrize("name", ROBUST)
def test_one_client_alone_moves_the_vector_by_its_change_whatever_its_progress(name: str) -> None:
    assert aggregate_uploads(ROBUST[name](), 2, [upload([3, -5], progress=4)]).tolist() == pytest.approx(
        [3, -5], rel=1e-12
    )


@pytest.mark.parametrize("name", ROBUST)
def test_changes_are_brought_to_the_median_progress(name: str) -> None:
    arrived = [upload([2, 4], progress=1), upload([8, 2], progress=2), upload([6, 9], progress=3)]
    even = [upload([4, 8]), upload([8, 2]), upload([4, 6])]
    assert aggregate_uploads(ROBUST[name](), 2, arrived).tolist() == pytest.approx(
        aggregate_uploads(ROBUST[name](), 2, even).tolist(), rel=1e-12
    )


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("progress", [1e-300, 5e-324, 3e38, 1e300])
def test_a_progress_of_nonsense_moves_no_client_out_of_bounds(name: str, progress: float) -> None:
    honest = [upload([1.0 + 0.1 * place], progress=20) for place in range(4)]
    move = aggregate_uploads(ROBUST[name](), 1, [*honest, upload([3e38], weight=1, progress=progress)])
    assert 0.5 <= move.item() <= 2
    with_mean = aggregate_uploads(Mean(), 1, [*honest, upload([3e38], progress=progress)])
    assert not 0.5 <= with_mean.item() <= 2


# Against other code


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    clients, size = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    numbers = st.floats(-100, 100, width=32)
    rows = st.lists(numbers, min_size=size, max_size=size)
    return np.array(draw(st.lists(rows, min_size=clients, max_size=clients)), dtype=np.float64)


@given(rows=matrices())
def test_of_whole_changes_the_median_is_numpys(rows: np.ndarray) -> None:
    assert aggregate_uploads(Median(), rows.shape[1], dense(rows)).tolist() == np.median(rows, axis=0).tolist()


@given(rows=matrices(), trim=st.sampled_from([0.1, 0.2, 0.25, 0.4, 0.49]))
def test_of_whole_changes_the_trimmed_mean_is_scipys(rows: np.ndarray, trim: float) -> None:
    assume(len(rows) < 3 or int(trim * len(rows)) >= 1)  # else we cut one at each end, and scipy none
    expected = trim_mean(rows, trim, axis=0)
    assert np.allclose(
        aggregate_uploads(Trimmed(trim), rows.shape[1], dense(rows)).numpy(), expected, rtol=1e-12, atol=1e-12
    )


def plainly(rows: np.ndarray) -> np.ndarray:
    """Weiszfeld as in a textbook, from the coordinate-wise median."""
    point: np.ndarray = np.median(rows, axis=0)
    for _ in range(3000):
        weights = 1 / np.maximum(np.linalg.norm(rows - point, axis=1), 1e-9)
        point = weights @ rows / weights.sum()
    return point


@pytest.mark.parametrize("seed", range(5))
def test_of_whole_changes_the_geometric_median_is_weiszfelds_and_a_minimum(seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((9, 6))
    rows[:4] += 1000.0 * (seed > 2)
    found = aggregate_uploads(GeometricMedian(), 6, dense(rows)).numpy()
    assert np.allclose(found, plainly(rows), rtol=1e-5, atol=1e-5)

    def total(point: np.ndarray) -> float:
        return float(np.linalg.norm(rows - point, axis=1).sum())

    assert total(found) <= minimize(total, rows.mean(axis=0), method="Nelder-Mead").fun * (1 + 1e-6)


@st.composite
def masked_rounds(draw: st.DrawFn) -> tuple[int, list[Upload]]:
    size = draw(st.integers(1, 6))
    uploads = []
    for _ in range(draw(st.integers(1, 7))):
        places = draw(st.none() | st.sets(st.integers(0, size - 1)).map(sorted))
        sent = size if places is None else len(places)
        change = draw(st.lists(st.floats(-100, 100, width=32), min_size=sent, max_size=sent))
        uploads.append(upload(change, places, draw(st.integers(1, 9))))
    return size, uploads


def sent_of(uploads: Sequence[Upload], index: int) -> list[float]:
    rows = [(range(10) if one.indices is None else one.indices.tolist(), one.change.tolist()) for one in uploads]
    return [change[list(places).index(index)] for places, change in rows if index in places]


@pytest.mark.parametrize("normalise", ["senders", "participants"])
@given(case=masked_rounds())
def test_of_some_coordinates_the_median_is_numpys_over_their_senders(
    normalise: Normalise, case: tuple[int, list[Upload]]
) -> None:
    size, uploads = case
    for index, found in enumerate(aggregate_uploads(Median(normalise), size, iter(uploads))):
        sent = sent_of(uploads, index)
        share = len(sent) / len(uploads) if normalise == "participants" else 1
        assert found.item() == (pytest.approx(np.median(sent) * share, rel=1e-12) if sent else 0)


@given(case=masked_rounds(), least=st.integers(1, 4))
def test_a_quorum_changes_nothing_but_what_too_few_sent(case: tuple[int, list[Upload]], least: int) -> None:
    size, uploads = case
    for aggregator in (Mean(), *(build() for build in ROBUST.values())):
        free, bound = (
            aggregate_uploads(aggregator, size, iter(uploads)),
            aggregate_uploads(Quorum(aggregator, least), size, iter(uploads)),
        )
        for index in range(size):
            enough = len(sent_of(uploads, index)) >= least
            assert same_bits(bound[index], free[index] if enough else torch.tensor(-0.0, dtype=torch.float64))


def test_large_vectors_are_worked_through_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    places = [torch.from_numpy(np.flatnonzero(draw.random(1000) < 0.3)) for _ in range(20)]
    uploads = [Upload(torch.from_numpy(draw.standard_normal(len(one))), 1.0, one) for one in places]
    uploads.append(Upload(torch.from_numpy(draw.standard_normal(1000)), 1.0))
    whole = {name: aggregate_uploads(build(), 1000, uploads) for name, build in ROBUST.items()}
    monkeypatch.setattr(median, "BLOCK", 777)
    monkeypatch.setattr(geometric_median, "BLOCK", 777)
    for name, build in ROBUST.items():
        assert torch.allclose(aggregate_uploads(build(), 1000, uploads), whole[name], rtol=1e-9, atol=1e-12)


# How much may be hostile


@st.composite
def attacked(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Draw the values of a coordinate's honest senders, and of fewer hostile ones."""
    honest = draw(st.lists(st.floats(-1, 1), min_size=1, max_size=9))
    hostile = draw(st.lists(st.sampled_from([1e6, -1e6, 1e30, -1e30]), max_size=len(honest) - 1))
    return honest, hostile


@given(case=attacked(), others=st.integers(0, 5))
@example(case=([0.1] * 5, []), others=0)  # the mean of three times 0.1 is the next number above 0.1
def test_fewer_than_half_of_a_coordinates_senders_cannot_leave_the_range_of_the_others(
    case: tuple[list[float], list[float]], others: int
) -> None:
    honest, hostile = case
    uploads = [upload([value, 1], [1, 2]) for value in honest] + [upload([value], [1], 1e9) for value in hostile]
    uploads += [upload([1], [0]) for _ in range(others)]  # they are no help: they did not send it
    shares = [0.49] if len(hostile) > max(1, 0.2 * (len(honest) + len(hostile))) else [0.2, 0.49]
    assert min(honest) <= aggregate_uploads(Median(), 3, uploads)[1].item() <= max(honest)
    # A sum of n values and its division by n are rounded n times, each by at most half the spacing at the largest.
    slack = len(honest) * float(np.spacing(max(map(abs, honest))))
    for share in shares if len(hostile) < len(honest) - 1 else []:
        assert min(honest) - slack <= aggregate_uploads(Trimmed(share), 3, uploads)[1].item() <= max(honest) + slack


@pytest.mark.parametrize("senders", range(3, 12))
def test_one_of_three_or_more_senders_is_powerless_under_every_rule_but_the_mean(senders: int) -> None:
    honest = [upload([1.0 + 0.01 * place], [7]) for place in range(senders - 1)]
    uploads = [*honest, upload([-1e9], [7], weight=1e6), *[upload([1], [0])] * 3]
    for aggregator in (Median(), Trimmed(0.01), Trimmed(0.2)):
        assert 1 <= aggregate_uploads(aggregator, 8, uploads)[7].item() <= 1.01 * senders
    assert aggregate_uploads(Mean(), 8, uploads)[7].item() < -1e8
    assert abs(aggregate_uploads(Clipped(), 8, uploads)[7].item()) <= 1.01 * senders
    assert abs(aggregate_uploads(GeometricMedian(), 8, uploads)[7].item()) <= 1.01 * senders


def test_a_coordinate_that_one_client_alone_sends_is_its_own_without_a_quorum() -> None:
    uploads = [upload([1e9], [3]), *[upload([1], [0])] * 5]
    for aggregator in (Mean(), Median(), Trimmed(0.2)):
        assert aggregate_uploads(aggregator, 4, uploads)[3].item() == 1e9
        assert aggregate_uploads(Quorum(aggregator, 2), 4, uploads).tolist() == [1, 0, 0, 0]
    for bounded in (Clipped(), GeometricMedian()):
        assert abs(aggregate_uploads(bounded, 4, uploads)[3].item()) <= 1


@pytest.mark.parametrize("name", ROBUST)
def test_a_hundred_masked_clients_take_two_seconds_at_most(name: str) -> None:
    draw = np.random.default_rng(0)
    places = [torch.from_numpy(np.sort(draw.choice(100_000, 10_000, replace=False))) for _ in range(100)]
    uploads = [Upload(torch.from_numpy(draw.standard_normal(10_000)), 1.0, one) for one in places]
    times = []
    for _ in range(3):
        begin = time.process_time()  # of this process alone, however busy the machine is
        aggregate_uploads(ROBUST[name](), 100_000, uploads)
        times.append(time.process_time() - begin)
    assert min(times) < 2  # a few tenths, on an idle machine


# Anchors


def named(aggregate: str = "mean", **keys: Any) -> Experiment:
    return Experiment(method="fedavg", aggregate=aggregate, **keys)


PROTOTYPES = torch.tensor([[[1.0, 0], [5, 5]], [[2, 0], [7, 7]], [[3, 3], [0, 0]], [[1e6, -1e6], [0, 0]]])
COUNTS = torch.tensor([[1, 1], [1, 3], [2, 0], [900, 0]])  # class 1 is held by two


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("median", [[2.5, 0], [6, 6]]), ("trimmed", [[2.5, 0], [6, 6]])],
)
def test_anchors_follow_the_aggregator_over_the_senders_of_the_class(
    aggregate: str, expected: list[list[float]]
) -> None:
    merged, defined = create_aggregator(named(aggregate)).merge(PROTOTYPES, COUNTS)
    assert merged.tolist() == expected
    assert defined.tolist() == [True, True]


@pytest.mark.parametrize("aggregate", ["median", "trimmed", "clipped", "geometric-median"])
def test_one_client_does_not_drag_an_anchor_away(aggregate: str) -> None:
    merged, _ = create_aggregator(named(aggregate)).merge(PROTOTYPES, COUNTS)
    assert float(merged[0].abs().max()) < 10
    assert float(erpa.global_prototypes(PROTOTYPES, COUNTS)[0].abs().max()) > 1e5
    external = create_aggregator(named(aggregate)).merge_public(PROTOTYPES[:, :1])
    assert float(external.abs().max()) < 10


def test_clipped_prototypes_are_no_further_from_their_median_than_half_of_them() -> None:
    # Median 2; distances 2, 1, 0, 1, 98: the median one is 1. So 1, 1, 2, 3, 3; by counts (1 + 1 + 2 + 3 + 18) / 10.
    values, counts = torch.tensor([0.0, 1, 2, 3, 100]).view(5, 1, 1), torch.tensor([[1], [1], [1], [1], [6]])
    for clip in (0.0, 7.0):  # clip is about changes
        assert create_aggregator(named("clipped", clip=clip)).merge(values, counts)[0].tolist() == [[2.5]]


def test_by_the_mean_anchors_are_the_papers_to_the_bit() -> None:
    prototypes, counts = torch.randn(5, 3, 4), torch.randint(0, 4, (5, 3))
    mean = create_aggregator(named())
    assert same_bits(mean.merge(prototypes, counts)[0], erpa.global_prototypes(prototypes, counts)[0])
    assert same_bits(mean.merge_public(prototypes), erpa.external_prototypes(prototypes))
    assert with_quorum(named(), counts).equal(counts)


def test_a_class_that_too_few_sent_counts_as_unsent() -> None:
    assert with_quorum(named(min_senders=3), COUNTS).tolist() == [[1, 0], [1, 0], [2, 0], [900, 0]]


# Keys


def test_by_default_every_server_has_the_mean(scope: Any) -> None:
    assert isinstance(create_aggregator(Experiment()), Mean)
    assert {"aggregate", "trim", "clip", "min-senders", "dropout"}.isdisjoint(Experiment().plain())


@pytest.mark.parametrize("method", METHODS)
def test_a_method_follows_the_rule_or_refuses_the_key(method: str) -> None:
    experiment = Experiment(method=method, aggregate="median")
    assert experiment.hash != Experiment(method=method).hash
    if METHODS[method].server.averages:
        assert prepare(experiment).aggregate == "median"
    else:
        assert method in ("local", "centralised", "fedgh", "fedtgp", "fedprotokd")
        with pytest.raises(InputError, match="have no effect"):
            prepare(experiment)
        with pytest.raises(InputError, match="min-senders = 2"):
            prepare(Experiment(method=method, min_senders=2))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"trim": 0.1}, 'trim = 0.1, which is for aggregate = "trimmed"'),
        ({"clip": 2.0, "aggregate": "median"}, 'clip = 2, which is for aggregate = "clipped", not "median"'),
        ({"trim": 0.5, "aggregate": "trimmed"}, "trim"),
        ({"min_senders": 11}, "min-senders = 11, but only 10 clients take part"),
        ({"min_senders": 6, "fraction": 0.5}, "but only 5 clients"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_what_would_be_without_effect_is_refused(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment(**keys)


def test_a_median_of_what_a_compressor_leaves_out_is_refused() -> None:
    compressed = Experiment(method="fedavg", aggregate="median", compress={"name": "top-k"})
    with pytest.raises(InputError, match="hardly anything would move"):
        prepare(compressed)
    prepare(Experiment(method="fedavg", aggregate="median", compress={"name": "qsgd"}))
    prepare(Experiment(method="fedavg", aggregate="clipped", compress={"name": "top-k"}))


# In a run


@pytest.mark.parametrize("aggregate", [*ROBUST, "mean"])
def test_a_run_takes_the_rule_for_adapter_and_anchors(simulated: Any, aggregate: str) -> None:
    went = simulated({"aggregate": aggregate, "rounds": 1})
    reference, sent = None, []
    for one in went.tap.select("down", "prototypes"):
        reference = one.message.tensor("adapter")
    assert reference is not None
    samples = {one.client: one.message.whole("samples") for one in went.tap.select("up", "join")}
    for one in went.tap.select("up", "train"):
        update = one.message.sparse("adapter")
        change = update.values.double() - reference[update.indices].double()
        sent.append(Upload(change, float(samples[one.client]), update.indices))
    aggregator = create_aggregator(named(aggregate))
    assert same_bits(went.adapter(), apply_update(reference, aggregate_uploads(aggregator, len(reference), sent)))
    public = torch.stack([one.message.tensor("public_prototypes") for one in went.tap.select("up", "prototypes")])
    assert torch.equal(went.server_state()["anchors"], create_aggregator(named(aggregate)).merge_public(public))


FROZEN = """
from torch import nn

def backbone(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 24), nn.ReLU()).requires_grad_(False)
"""
AVERAGING = [name for name, method in METHODS.items() if method.server.averages]


@pytest.mark.parametrize("method", AVERAGING)
def test_every_method_that_averages_runs_by_another_rule_and_under_a_quorum(
    simulate: Any, scope: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frozen_here.py").write_text(FROZEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = {"model": {"name": "frozen_here:backbone"}} if method == "fedpcl" else {}
    keys: list[dict[str, Any]] = [
        {},
        {"aggregate": "median"},
        {"min-senders": 4},
        {"aggregate": "geometric-median", "min-senders": 2},
    ]
    runs = [simulate({"method": method, "rounds": 2, "public": {"classes": [0, 1]}, **model, **one}) for one in keys]
    assert all(not one.events("client-failed") for one in runs)
    digests = {one.finished.summary["state_digest"] for one in runs}
    assert len(digests) == (4 if sends_parts(method, scope) else 3)  # who sends all is always a sender


def sends_parts(method: str, scope: Any) -> bool:
    """True if clients send some coordinates, or prototypes of the classes that they hold."""
    fields = METHODS[method].server.message_schemas(scope({"method": method}, width=200))["train"].up.values()
    return any(isinstance(one, SparseVector) or one.kind == "prototype_values" for one in fields)


@pytest.mark.parametrize("aggregate", [name for name in ROBUST if name != "clipped"])
@pytest.mark.parametrize("switches", [{"error_feedback": "ef21"}, {"error_feedback": "ef"}, {"timing": "post-train"}])
def test_rules_go_with_the_switches_of_refprotofl(simulate: Any, aggregate: str, switches: dict[str, Any]) -> None:
    more = {"normalise": "participants"} if "error_feedback" in switches else {}
    went = simulate({"aggregate": aggregate, "rounds": 2}, **switches, **more)
    assert not went.events("client-failed")
    assert bool(went.adapter().isfinite().all())


def test_a_method_with_its_own_aggregator_refuses_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulate: Any
) -> None:
    (tmp_path / "ruled.py").write_text(
        "from refprotofl.methods import FedAvgClient, FedAvgServer, Mean\n"
        "class Ruled(FedAvgServer):\n"
        "    def __init__(self, context):\n"
        "        super().__init__(context)\n"
        "        self.aggregator = Mean('participants')\n"
        "class Method:\n"
        "    server, client = Ruled, FedAvgClient\n"
        "class Plain:\n"
        "    server, client = FedAvgServer, FedAvgClient\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="has its own aggregator"):
        simulate({"method": "ruled:Method", "aggregate": "median"})
    assert simulate({"method": "ruled:Method", "rounds": 1}).finished is not None
    assert simulate({"method": "ruled:Plain", "rounds": 1, "aggregate": "median"}).finished is not None
