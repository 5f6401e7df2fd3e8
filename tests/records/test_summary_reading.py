"""A damaged summary.json is reported as such; one of another version is read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import DataError
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.records.folder import RunFolder
from refprotofl.records.summary import read_summary

Plain = dict[str, Any]


def change(path: Path, edit: Callable[[Plain], object]) -> Plain:
    plain: Plain = json.loads(path.read_text())
    edit(plain)
    path.write_text(json.dumps(plain))
    return plain


def test_what_is_read_is_what_was_written_in_that_order(undisturbed: RunResult) -> None:
    path = undisturbed.folder / "summary.json"
    summary = read_summary(path)
    assert summary == undisturbed.summary
    assert json.dumps(summary, indent=2) + "\n" == path.read_text()
    assert list(summary) == [
        *("schema", "experiment", "experiment_hash", "rounds_done", "accuracy", "metrics", "accuracy_per_client"),
        *("evaluated_clients", "trained_clients", "confusion", "accuracy_per_class", "facts", "communication"),
        *("full_model", "steps", "seconds", "state_digest"),
    ]
    assert list(summary["communication"]) == ["uplink", "downlink", "one_off", "evaluation"]
    assert list(summary["seconds"]) == ["total", "train", "evaluate"]


def test_other_versions_are_read(finished_copy: Path) -> None:
    def edit(plain: Plain) -> None:
        del plain["accuracy"]["own_prototype"]
        plain["communication"]["relay"] = {"payload_bytes": 1}
        plain["novelty"] = [1, 2]

    plain = change(finished_copy / "summary.json", edit)
    assert RunFolder(finished_copy).read_summary() == plain  # what is unknown stays, too


DAMAGES: dict[str, Callable[[Plain], object]] = {
    "empty": lambda plain: plain.clear(),
    "no accuracy": lambda plain: plain.pop("accuracy"),
    "words for a number": lambda plain: plain["accuracy"].update(personal="high"),
    "a number for a list": lambda plain: plain["accuracy_per_client"].update(personal=0.5),
    "a client less": lambda plain: plain["accuracy_per_client"]["personal"].pop(),
    "no uplink": lambda plain: plain["communication"].pop("uplink"),
    "no bytes": lambda plain: plain["communication"]["downlink"].pop("payload_bytes"),
    "no time": lambda plain: plain["seconds"].pop("total"),
    "a list of facts": lambda plain: plain.update(facts=[]),
    "no experiment": lambda plain: plain.update(experiment={"rounds": "many"}),
    "a number as digest": lambda plain: plain.update(state_digest=0),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_reported_with_what_to_do(
    finished_copy: Path, tiny: Callable[..., Experiment], damage: str
) -> None:
    path = finished_copy / "summary.json"
    change(path, DAMAGES[damage])
    with pytest.raises(DataError) as refused:
        run(tiny(), out=finished_copy, resume=True)
    assert str(refused.value) == f"{path} is damaged; delete it and run again with --resume."


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"\xff"'])
def test_what_is_not_even_an_object_is_reported_alike(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(DataError, match="is damaged; delete it"):
        RunFolder(tmp_path).read_summary()


def test_the_advice_helps(finished_copy: Path, tiny: Callable[..., Experiment], undisturbed: RunResult) -> None:
    (finished_copy / "summary.json").unlink()
    again = run(tiny(), out=finished_copy, resume=True).summary
    assert again == undisturbed.summary
    assert list(again["communication"]["uplink"]) == list(undisturbed.summary["communication"]["uplink"])
