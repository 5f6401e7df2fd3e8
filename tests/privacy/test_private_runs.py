"""Runs with [privacy]: they repeat, they are resumed, they send what they may, and what is not defined is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import tiny_keys

from refprotofl import Experiment
from refprotofl.core.errors import InputError, RunError
from refprotofl.federation import Callback, run
from refprotofl.federation.resolution import prepare
from refprotofl.methods.base.cohort import Cohort
from refprotofl.methods.base.training import Diverged
from refprotofl.methods.builtin.fedavg.fedavg import FedAvgServer
from refprotofl.methods.catalogue import METHODS
from refprotofl.methods.declaration import Method
from refprotofl.records.folder import read_events
from refprotofl.wire import decode

pytestmark = pytest.mark.slow

TINY = tiny_keys(clients=3)
SAMPLE = {"unit": "sample", "noise": 1.0}
CLIENT = {"unit": "client", "noise": 1.0}


def tiny(**keys: Any) -> Experiment:
    return Experiment.parse({**TINY, **keys})


class Uplink(Callback):
    def __init__(self) -> None:
        self.messages: dict[tuple[str, int, int], dict[str, Any]] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if direction == "up" and purpose == "training":
            self.messages[phase, client, round] = dict(decode(data))


@pytest.mark.parametrize(
    "keys",
    [
        {"privacy": SAMPLE},
        {"privacy": CLIENT, "refprotofl": {"select": "random"}, "fraction": 0.67},
    ],
)
def test_workers_and_interruptions_change_nothing(keys: dict[str, Any], tmp_path: Path) -> None:
    whole = run(tiny(**keys), out=tmp_path / "whole").summary
    shared = run(tiny(**keys), out=tmp_path / "shared", workers=2).summary
    run(tiny(**keys, rounds=1), out=tmp_path / "resumed")
    resumed = run(tiny(**keys), out=tmp_path / "resumed", resume=True).summary
    assert whole["state_digest"] == shared["state_digest"] == resumed["state_digest"]
    assert whole["privacy"] == resumed["privacy"]
    assert whole["privacy"]["rounds"] == 2  # those before the interruption count, too
    assert json.loads((tmp_path / "whole" / "summary.json").read_text())["privacy"] == whole["privacy"]


def test_noise_is_another_in_every_round_and_for_every_client(tmp_path: Path) -> None:
    """At a learning rate near 0 only the noise moves the weights; here they move all the same."""
    sent = Uplink()
    run(tiny(method="fedavg", privacy={**SAMPLE, "noise": 50.0}), out=tmp_path / "run", callback=sent)
    moved = [sent.messages["train", client, 1]["shared"] for client in range(3)]
    assert not any(torch.equal(moved[a], moved[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_of_classes_without_public_images_nothing_exact_goes_up_and_that_costs_extra(tmp_path: Path) -> None:
    """The first prototypes are of the common initial weights: without noise they would be the same in both runs."""
    part = {"per-class": 2, "classes": [0, 1, 2, 3, 4]}
    exact, noised = Uplink(), Uplink()
    run(tiny(public=part, rounds=1), out=tmp_path / "exact", callback=exact)
    done = run(tiny(public=part, rounds=1, privacy=SAMPLE), out=tmp_path / "noised", callback=noised)
    for client in range(3):
        plain, private = (one.messages["prototypes", client, 1] for one in (exact, noised))
        assert torch.equal(plain["public_prototypes"], private["public_prototypes"])
        names = ("local_prototypes", "counts")
        assert not any(name in private and torch.equal(plain[name], private[name]) for name in names)
    covered = run(tiny(rounds=1, privacy=SAMPLE), out=tmp_path / "covered").summary["privacy"]["epsilon"]
    spent = done.summary["privacy"]["epsilon"]
    assert spent is not None
    assert covered is not None
    assert spent > covered


def test_clients_that_are_protected_send_the_same_coordinates(tmp_path: Path) -> None:
    sent = Uplink()
    run(tiny(privacy=CLIENT, refprotofl={"select": "random"}), out=tmp_path / "run", callback=sent)
    masks = {round: [sent.messages["train", one, round]["adapter"].indices for one in range(3)] for round in (1, 2)}
    assert all(torch.equal(masks[round][0], other) for round in (1, 2) for other in masks[round])
    assert not torch.equal(masks[1][0], masks[2][0])


BY_SAMPLE = [
    name for name, method in METHODS.items() if isinstance(method.releases(Experiment(method=name)).sample, int)
]


@pytest.mark.parametrize("method", BY_SAMPLE)
def test_methods_that_say_they_protect_samples_run(method: str, tmp_path: Path) -> None:
    summary = run(tiny(method=method, rounds=1, privacy=SAMPLE), out=tmp_path / "run").summary
    assert summary["privacy"]["epsilon"] is not None


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedrep", "vhl"])
def test_methods_that_say_they_protect_clients_run(method: str, tmp_path: Path) -> None:
    summary = run(tiny(method=method, rounds=1, privacy=CLIENT), out=tmp_path / "run").summary
    assert summary["privacy"]["unit"] == "client"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"method": "vhl", "privacy": SAMPLE}, "compares the samples of a batch"),
        ({"method": "fast", "privacy": SAMPLE}, "embeddings of others"),
        ({"method": "fedpac", "privacy": SAMPLE}, "without noise"),
        ({"method": "fedproto", "fedproto": {"collect": "running"}, "privacy": SAMPLE}, "running prototypes"),
        ({"method": "centralised", "privacy": SAMPLE}, "in one place"),
        ({"privacy": CLIENT}, "chosen by how far they moved"),
        ({"method": "fedavg", "compress": {"name": "top-k"}, "privacy": CLIENT}, "chosen by how far they moved"),
        ({"method": "fedproto", "privacy": CLIENT}, "how many these are depends on their data"),
        ({"method": "fednova", "privacy": CLIENT}, "how many samples"),
        ({"method": "local", "privacy": CLIENT}, "nothing leaves a client"),
    ],
)
def test_what_is_not_defined_is_refused_with_the_reason(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        prepare(tiny(**keys))


def test_every_method_says_whether_it_can_be_private() -> None:
    for method in METHODS.values():
        said = method.releases(Experiment(method=method.name))
        assert "does not declare" not in f"{said.sample}{said.client}", method.name


def test_keys_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match="nothing is protected"):
        tiny(privacy={"noise": 2.0})
    with pytest.raises(InputError, match="batch-local"):
        tiny(privacy=SAMPLE, model={"name": "mlp", "norm": "batch-local"})
    with pytest.raises(InputError, match="min-senders"):
        tiny(privacy=CLIENT, aggregate="median")


def test_a_missing_accountant_is_reported_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refprotofl.privacy.accounting.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"refprotofl\[privacy\]"):
        prepare(tiny(privacy=SAMPLE))


def test_a_method_of_ones_own_that_says_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="does not declare"):
        prepare(tiny(method=f"{__name__}:Silent", privacy=SAMPLE))


class Silent(Method):
    """does not declare what it releases"""

    server, client = METHODS["fedavg"].server, METHODS["fedavg"].client


def test_a_round_is_not_repeated_under_the_same_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def failing(self: FedAvgServer, cohort: Cohort) -> None:
        asked.append(cohort.round)
        raise Diverged("training diverged")

    monkeypatch.setattr(FedAvgServer, "round", failing)
    with pytest.raises(RunError, match=r"at the server training diverged.*no client is asked twice"):
        run(tiny(method="fedavg", privacy=SAMPLE), out=tmp_path / "run")
    assert asked == [1]


def test_a_change_that_is_clipped_anyway_ends_nothing(tmp_path: Path) -> None:
    """Two of five clients send their changes times a million: each counts as any other of the clip's length."""
    attack = {"kind": "scaling", "fraction": 0.4, "strength": 1e6}
    finished = run(tiny(method="fedavg", privacy=CLIENT, attack=attack, clients=5), out=tmp_path / "run")
    assert finished.summary["rounds_done"] == 2
    assert not [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
