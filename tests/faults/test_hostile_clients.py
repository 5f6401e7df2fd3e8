"""One hostile client of six against every method, rule and attack: whole runs.

A part by default, in which every method, rule and attack occurs; all of it with REFPROTOFL_FAULTS=full, which
`make test-faults` sets.
"""

import os
from pathlib import Path

import pytest
from tests.conftest import Tried
from tests.faults.hostile import (
    ATTACKER,
    ATTACKS,
    BACKBONES,
    ROBUST,
    RULES,
    VARIANTS,
    Outcome,
    experiment_of,
    hostile,
    is_allowed,
    play,
)

EVERYTHING = os.environ.get("REFPROTOFL_FAULTS") == "full"
LOSS = 0.10  # of accuracy that an attack may cost honest clients under a robust rule
HUGE = ("1e8", "1e15", "1e30", "sleeper, 1e8")  # what no rule may let pass

Case = tuple[str, str]  # variant and rule


def share() -> dict[Case, list[str]]:
    """One attack and one rule for each variant, along the diagonals of the matrix."""
    chosen: dict[Case, list[str]] = {}
    attacks = list(ATTACKS)
    for number, variant in enumerate(VARIANTS):
        rules = [aggregator for aggregator in RULES if is_allowed(variant, aggregator)]
        chosen[variant, rules[number % len(rules)]] = [attacks[number % len(attacks)]]
    return chosen


def everything() -> dict[Case, list[str]]:
    return {
        (variant, aggregator): list(ATTACKS)
        for variant in VARIANTS
        for aggregator in RULES
        if is_allowed(variant, aggregator)
    }


CASES = everything() if EVERYTHING else share()


def test_the_share_has_every_method_rule_and_attack() -> None:
    assert {variant for variant, _ in share()} == {*VARIANTS}
    assert {aggregator for _, aggregator in share()} == {*RULES}
    assert {attack for attacks in share().values() for attack in attacks} == {*ATTACKS}


@pytest.fixture(autouse=True)
def _steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backbones of this module's own, and no waiting for the disk."""
    (tmp_path / "backbones_under_attack.py").write_text(BACKBONES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize(("variant", "aggregator"), [case for case in CASES if case[1] in ROBUST])
def test_under_a_robust_rule_one_hostile_client_costs_little_and_ends_nothing(
    variant: str, aggregator: str, tmp_path: Path, tried: Tried
) -> None:
    without: dict[int, Outcome] = {}
    for attack in CASES[variant, aggregator]:
        change, start = ATTACKS[attack]
        experiment = experiment_of(variant, aggregator)
        if start not in without:
            without[start] = play(experiment, tmp_path / f"without-{start}", hostile(None, start))
        found = play(experiment, tmp_path / attack, hostile(change, start))
        assert not found.stopped, f"{attack}: {found.stopped}"
        assert_blameless(attack, start, found)
        assert found.accuracy >= without[start].accuracy - LOSS, attack
    tried("runs with a hostile client under a robust rule", len(CASES[variant, aggregator]))


@pytest.mark.parametrize("variant", [variant for variant, aggregator in CASES if aggregator == "mean"])
def test_under_the_mean_a_run_continues_or_stops_with_the_right_name(
    variant: str, tmp_path: Path, tried: Tried
) -> None:
    for attack in CASES[variant, "mean"]:
        change, start = ATTACKS[attack]
        found = play(experiment_of(variant, "mean"), tmp_path / attack, hostile(change, start))
        assert not found.stopped or f"client {ATTACKER}" in found.stopped, f"{attack}: {found.stopped}"
        assert_blameless(attack, start, found)
    tried("runs with a hostile client under the mean", len(CASES[variant, "mean"]))


def assert_blameless(attack: str, start: int, found: Outcome) -> None:
    """Nobody but the attacker is dropped; it is where it sends what no client sends, with a reason."""
    assert found.dropped <= {ATTACKER}, f"{attack}: {found.failures}"
    assert all(reason for _, _, _, reason in found.failures)
    if attack in HUGE:
        assert {round for round, *_ in found.failures} == {*range(start, 7)}, f"{attack}: {found.failures}"


@pytest.mark.parametrize("variant", VARIANTS if EVERYTHING else list(VARIANTS)[::4])
def test_honest_clients_are_never_dropped(variant: str, tmp_path: Path) -> None:
    """However unlike their data are: few classes each, some with ten samples, some absent from a round."""
    for seed in range(10 if EVERYTHING else 1):
        experiment = experiment_of(variant, "mean", alpha=0.1, seed=seed, clients=8, fraction=0.75)
        found = play(experiment, tmp_path / str(seed))
        assert (found.stopped, found.failures) == ("", ())
