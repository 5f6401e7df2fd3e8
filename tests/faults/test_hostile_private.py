"""One hostile client in private runs: no round is repeated there, and no answer ends one."""

from pathlib import Path
from typing import Any

import pytest
from tests.faults.hostile import ATTACKER, Outcome, experiment_of, filled, hostile, play

pytest.importorskip("dp_accounting")

BY_CLIENT: dict[str, Any] = {
    "privacy": {"unit": "client", "clip": 1.0, "noise": 0.1, "delta": 1e-3},
    "refprotofl": {"select": "random"},
}
BY_SAMPLE: dict[str, Any] = {"privacy": {"unit": "sample", "clip": 1.0, "noise": 0.1, "delta": 1e-3}}


def attacked(number: float, tmp_path: Path, **more: Any) -> Outcome:
    return play(experiment_of("refprotofl", "mean", **more), tmp_path / "run", hostile(filled(number)))


@pytest.mark.parametrize("number", [1e8, 1e30])
def test_where_clients_are_protected_what_is_too_long_is_shortened_and_counts(number: float, tmp_path: Path) -> None:
    """A client's part must not depend on what others sent: that would reveal more than the noised sum."""
    found = attacked(number, tmp_path, **BY_CLIENT)
    assert (found.stopped, found.failures) == ("", ())


@pytest.mark.parametrize("number", [1e8, 1e30])
def test_where_samples_are_protected_an_outlier_is_left_out(number: float, tmp_path: Path) -> None:
    found = attacked(number, tmp_path, **BY_SAMPLE)
    assert found.stopped == ""
    assert found.dropped == {ATTACKER}
    assert {code for _, _, code, _ in found.failures} == {"outlier"}
