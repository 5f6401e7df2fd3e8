"""Sample-level privacy on nodes: noise from their own entropy, and an account that the server cannot exceed."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.deployments import Configs, Grid, Stop, deployed, participants, simulated

from refprotofl.deploy.headers import Route
from refprotofl.deploy.node_privacy import ENTROPY, Account, own_entropy
from refprotofl.deploy.node_store import NodeStore, runs_in
from refprotofl.experiment import Experiment
from refprotofl.methods import Refused
from refprotofl.privacy import OwnEntropy, epsilon_cell

PRIVATE = {"method": "fedavg", "privacy__unit": "sample", "privacy__noise": 1.0, "share": "full"}
RUN = "0" * 32


def test_noise_is_the_nodes_own_and_epsilon_is_known_on_both_sides(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(**PRIVATE, rounds=2, evaluate__every=9)
    there, here = deployed(grid, config, tmp_path / "there"), simulated(config, tmp_path / "here")
    assert there.summary["state_digest"] != here.summary["state_digest"]
    assert participants(tmp_path / "there") == [[0, 1, 2]] * 2
    spent, known = there.summary["privacy"], here.summary["privacy"]
    assert spent == known
    said = capsys.readouterr().out
    assert "the digests of this run do not repeat" in said
    assert said.count("Privacy: epsilon") >= 3
    assert epsilon_cell(spent).split()[0] in re.findall(r"Privacy: epsilon (\S+)", said)  # the node with the largest
    assert there.summary["accuracy"].get("own") is None  # exact scores of a node's samples stay there


def test_a_run_that_is_resumed_counts_no_more_than_its_rounds(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    config = settings(**PRIVATE, evaluate__every=9)
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, config, tmp_path / "there", Stop(after=2))
    there = deployed(grid, config, tmp_path / "there")
    assert there.summary["privacy"]["rounds"] == 3
    (store,) = runs_in(tmp_path / "store-0")
    assert (store.folder / ENTROPY).stat().st_mode & 0o077 == 0 or store.folder.stat().st_mode & 0o077 == 0


def route(round: int, verb: str = "train", base: str = "") -> Route:
    return Route(RUN, 0, round, 1, 0, verb, True, base, [])


@pytest.fixture
def account(tmp_path: Path) -> Account:
    store = NodeStore(tmp_path, RUN)
    store.prepare()
    experiment = Experiment(method="fedavg", rounds=3, privacy={"unit": "sample", "noise": 1.0})
    return Account(store, experiment, own_entropy(store), 100)


def test_a_server_gets_one_noised_answer_for_each_round_and_no_more(account: Account) -> None:
    first = route(1)
    account.enter(first, first.key(b"a"))
    account.enter(replace(first, attempt=1), first.key(b"a"))  # the same again
    with pytest.raises(Refused, match="a second noised answer is not accounted for"):
        account.enter(first, first.key(b"b"))
    with pytest.raises(Refused, match="There is no round 4"):
        account.enter(route(4), route(4).key(b"a"))
    account.enter(route(9, "evaluate"), "any")
    account.enter(route(2), route(2).key(b"a"))
    assert account.rounds() == 2


def test_the_noise_of_a_request_repeats_on_its_device_only(tmp_path: Path) -> None:
    mine, other = OwnEntropy(b"1" * 32), OwnEntropy(b"2" * 32)

    def draw(entropy: OwnEntropy, request: str, purpose: str = "privacy/gradients", round: int = 1) -> np.ndarray:
        entropy.request = request
        return entropy(purpose, round).standard_normal(4)

    known = draw(mine, "a")
    assert np.array_equal(known, draw(mine, "a"))
    for different in (draw(mine, "b"), draw(other, "a"), draw(mine, "a", "batches"), draw(mine, "a", round=2)):
        assert not np.array_equal(known, different)
    store = NodeStore(tmp_path, RUN)
    assert own_entropy(store)._secret == own_entropy(store)._secret
    assert len(own_entropy(store)._secret) == 32
