"""verify finds what was changed on disk, and where two runs part."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import DataError, InputError
from refprotofl.core.state import digest_run, digest_state
from refprotofl.engines.local.store import read_state
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.models import ADAPTER, build_model
from refprotofl.records.folder import read_experiment
from refprotofl.records.state_files import load_state, save_state
from refprotofl.records.verify import first_difference, verify_run
from refprotofl.wire import Message, Sparse


@pytest.fixture(scope="session")
def initial(undisturbed: RunResult) -> list[str]:
    experiment = read_experiment(undisturbed.folder)
    return [digest_state(dict(build_model(experiment).read_private(ADAPTER)))] * experiment.clients


def sign(manifest: dict[str, object]) -> dict[str, object]:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return {"sha256": hashlib.sha256(json.dumps(rest).encode()).hexdigest(), **rest}


def test_an_intact_run_passes(undisturbed: RunResult, initial: list[str]) -> None:
    found = verify_run(undisturbed.folder, initial, read_state)
    assert (found.round, found.state_digest) == (2, undisturbed.summary["state_digest"])
    assert found.clients_with_state == 2


def test_the_digest_is_that_of_server_and_clients_in_order(undisturbed: RunResult) -> None:
    checkpoint = undisturbed.folder / "checkpoint"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    states = [load_state(checkpoint / manifest["server"]["file"], manifest["server"]["digest"])]
    for client in ("0", "1"):
        states.append(read_state(checkpoint, manifest["clients"][client]))
    server, *clients = map(digest_state, states)
    assert digest_run(server, clients) == undisturbed.summary["state_digest"]
    assert digest_run(server, clients[::-1]) != undisturbed.summary["state_digest"]


def test_a_client_never_asked_counts_with_its_initial_state(
    tiny: Callable[..., Experiment], tmp_path: Path, initial: list[str]
) -> None:
    finished = run(tiny(clients=3, fraction=0.34, rounds=1), out=tmp_path / "run")
    found = verify_run(finished.folder, initial[:1] * 3, read_state)
    assert found.clients_with_state == 1
    assert found.state_digest == finished.summary["state_digest"]
    with pytest.raises(DataError):
        verify_run(finished.folder, ["00" * 32] * 3, read_state)


@pytest.mark.parametrize("owner", ["server", "client"])
def test_a_state_that_was_changed_with_all_hashes_is_found(finished_copy: Path, initial: list[str], owner: str) -> None:
    checkpoint = finished_copy / "checkpoint"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    record = manifest["server"] if owner == "server" else manifest["clients"]["1"]
    path = (checkpoint if owner == "server" else checkpoint / "clients") / record["file"]
    state = load_state(path, record["digest"])
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    name, values = next((name, value) for name, value in tensors.items() if value.is_floating_point())
    state[name] = torch.nextafter(values, values + 1)
    save_state(path, state)
    record["digest"] = digest_state(state)
    (checkpoint / "manifest.json").write_text(json.dumps(sign(manifest)))
    with pytest.raises(DataError, match=r"states of round 2 have digest .* but its manifest has"):
        verify_run(finished_copy, initial, read_state)


def test_a_digest_that_was_changed_in_the_events_is_found(finished_copy: Path, initial: list[str]) -> None:
    path = finished_copy / "events.jsonl"
    digest = json.loads((finished_copy / "summary.json").read_text())["state_digest"]
    path.write_text(path.read_text().replace(digest, "f" * 64))
    with pytest.raises(DataError, match=r"events\.jsonl has ffff"):
        verify_run(finished_copy, initial, read_state)


def test_a_round_that_was_committed_but_not_reported_needs_a_resume(cut_off: Path, initial: list[str]) -> None:
    (cut_off / "events.jsonl").write_text("")
    with pytest.raises(DataError, match=r"lacks round 1.*--resume"):
        verify_run(cut_off, initial, read_state)


def test_a_run_without_a_round_has_nothing_to_verify(finished_copy: Path, initial: list[str]) -> None:
    (finished_copy / "checkpoint" / "manifest.json").unlink()
    with pytest.raises(InputError, match="no committed round"):
        verify_run(finished_copy, initial, read_state)


def test_equal_runs_agree(undisturbed: RunResult, tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    again = run(tiny(), out=tmp_path / "again")
    assert again.summary["state_digest"] == undisturbed.summary["state_digest"]
    assert first_difference(undisturbed.folder, again.folder) is None


def test_agreement_is_reported_up_to_the_first_difference(undisturbed: RunResult, cut_off: Path) -> None:
    assert first_difference(undisturbed.folder, cut_off) == "They agree for 1 round; one has 2, the other 1."


@pytest.mark.parametrize(
    ("verb", "field"), [("prototypes", "public_prototypes"), ("train", "adapter")], ids=["prototypes", "train"]
)
def test_the_first_message_that_differs_is_named(
    undisturbed: RunResult,
    tiny: Callable[..., Experiment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    field: str,
) -> None:
    """The largest value of client 1 in round 2, by a few parts in 100,000: everything after it differs too."""
    honest = getattr(RefProtoClient, verb)

    def perturbed(self: RefProtoClient, round: int, message: Message) -> Message:
        answer: Message = honest(self, round, message)
        if (self.context.client_id, round) == (1, 2):
            sent = answer[field]
            values = sent.values if isinstance(sent, Sparse) else sent
            assert isinstance(values, Tensor)
            values.view(torch.int32).view(-1)[int(values.abs().argmax())] ^= 1 << 8
        return answer

    monkeypatch.setattr(RefProtoClient, verb, perturbed)
    other = run(tiny(), out=tmp_path / "other")
    assert other.summary["state_digest"] != undisturbed.summary["state_digest"]
    difference = first_difference(undisturbed.folder, other.folder)
    assert difference is not None
    assert difference.startswith(f"Round 2, {verb} up, client 1: {field}: ")


def test_a_private_state_that_differs_is_named_though_no_message_does(
    undisturbed: RunResult, tiny: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = RefProtoClient.train

    def perturbed(self: RefProtoClient, round: int, message: ValidatedMessage) -> Message:
        answer = honest(self, round, message)
        if (self.context.client_id, round) == (0, 2):
            self.state["a_secret"] = 1
        return answer

    monkeypatch.setattr(RefProtoClient, "train", perturbed)
    difference = first_difference(undisturbed.folder, run(tiny(), out=tmp_path / "other").folder)
    assert difference is not None
    assert difference.startswith("Round 2, state of client: 0: ")


def test_runs_of_different_experiments_differ_by_their_keys(
    undisturbed: RunResult, tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    other = run(tiny(seed=1, rounds=1, train={"lr": 0.5}), out=tmp_path / "other")
    difference = first_difference(undisturbed.folder, other.folder)
    assert difference == "The experiments differ in rounds, seed, train.lr."
