"""`audit`, called as a user does, and what `run` and `methods` say of privacy."""

import json
from typing import Any

from tests.tiny import tiny_options

TINY = (*tiny_options(clients=3, rounds=1, min_size=20), "--workers", 1)


def test_two_runs_under_attack(refprotofl: Any) -> None:
    output = refprotofl("run", *TINY, "--set", "privacy.unit=sample", "--set", "privacy.noise=2", "--out", "private")
    assert output.code == 0
    assert "Privacy: epsilon" in output.out
    assert "zero-out-one" in output.out
    assert refprotofl("run", *TINY, "--out", "plain").code == 0
    audited = refprotofl("audit", "plain", "private", "--clients", 2, "--format", "json")
    assert audited.code == 0
    plain, private = json.loads(audited.out)["rows"]
    assert (plain["epsilon"], plain["unit"]) == (None, None)
    assert private["unit"] == "sample"
    assert private["epsilon"] > 0
    assert 0 <= plain["loss_auc_low"] <= plain["loss_auc"] <= plain["loss_auc_high"] <= 1
    assert {"rebuilt_1_correlation", "rebuilt_1_psnr", "beyond_4_correlation"} <= plain.keys()


def test_what_is_no_run_or_not_defined_is_reported_in_a_sentence(refprotofl: Any) -> None:
    missing = refprotofl("audit", "nowhere")
    assert missing.code == 2
    assert "nowhere" in missing.err
    refused = refprotofl("run", *TINY, "--set", "privacy.unit=client")
    assert refused.code == 2
    assert 'use select = "random"' in " ".join(refused.err.split())


def test_methods_lists_which_units_are_defined(refprotofl: Any) -> None:
    output = " ".join(refprotofl("methods", "vhl").out.split())
    assert 'privacy.unit = "sample": not defined, as its contrastive loss' in output
    assert 'privacy.unit = "client": yes' in output
