"""The operator: admits and revokes keys, follows runs to their end."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.flower.operators import FakeOperator

from refprotofl.cli.deploy import _raise_for, _run_config
from refprotofl.core.errors import DataError, InputError, MachineError, RunError
from refprotofl.deploy import operator as module
from refprotofl.deploy.admission import read_admissions
from refprotofl.deploy.kits import PUBLIC_KEY, load_key, write_kits
from refprotofl.deploy.operator import RunStatus, admit, follow, revoke, run_state
from refprotofl.deploy.run_config import read_run_config
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.deploy.status import StatusCallback
from refprotofl.engines.flower.control import FlowerOperator, _status


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = create_site(tmp_path / "site", SiteKeys(host="127.0.0.1", port=8443, operator_port=8444, nodes=2))
    write_kits(site)
    return site


@pytest.fixture
def keys(site: Site) -> list[Path]:
    """The public keys that the two nodes made."""
    for number in range(2):
        load_key(site.kit(number), f"node-{number}")
    return [site.kit(number) / PUBLIC_KEY for number in range(2)]


def test_a_key_is_admitted_and_its_place_is_kept(site: Site, keys: list[Path]) -> None:
    operator = FakeOperator()
    client, mark = admit(site, operator, "node-1", keys[1])
    assert client == 1
    assert operator.calls == [("register", "node-1")]
    assert read_admissions(site).client_of("node-1", mark) == 1
    assert read_admissions(site).client_of("node-0", mark) is None
    assert admit(site, operator, "sensor", keys[0], 0)[0] == 0


def test_a_replayed_admission_is_refused_and_changes_nothing(site: Site, keys: list[Path]) -> None:
    operator = FakeOperator()
    admit(site, operator, "node-0", keys[0])
    before, calls = read_admissions(site), list(operator.calls)
    for name, key, client, words in [
        ("node-0", keys[0], None, "This key is admitted already, as node-0"),
        ("other", keys[0], 1, "This key is admitted already, as node-0"),
        ("node-0", keys[1], 1, "node-0 is admitted already, with another key"),
        ("node-1", keys[1], 0, "Client 0 belongs to node-0 already"),
    ]:
        with pytest.raises(InputError, match=words):
            admit(site, operator, name, key, client)
    assert (read_admissions(site), operator.calls) == (before, calls)


def test_a_revoked_key_never_comes_back(site: Site, keys: list[Path], tmp_path: Path) -> None:
    operator = FakeOperator()
    admit(site, operator, "node-0", keys[0])
    shutil.copy(keys[0], tmp_path / "kept.pub")
    revoke(site, operator, "node-0")
    assert operator.known_nodes == []
    with pytest.raises(InputError, match=r"This key was revoked\. Delete node\.key on the node"):
        admit(site, operator, "again", tmp_path / "kept.pub", 0)
    (site.kit(0) / "node.key").unlink()
    load_key(site.kit(0), "node-0")
    assert admit(site, operator, "node-0", keys[0])[0] == 0  # its new key has its place
    with pytest.raises(InputError, match=r"No node node-9 is admitted\. Admitted nodes: node-0\."):
        revoke(site, operator, "node-9")


def test_nothing_is_half_admitted_where_the_server_fails(site: Site, keys: list[Path]) -> None:
    operator = FakeOperator(trouble=MachineError("no"))
    with pytest.raises(MachineError):
        admit(site, operator, "node-0", keys[0])
    assert read_admissions(site).nodes == {}
    operator.trouble = None
    assert admit(site, operator, "node-0", keys[0])[0] == 0


def test_a_key_that_was_registered_before_a_crash_is_admitted_without_being_registered_again(
    site: Site, keys: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = FakeOperator()

    def die(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_admissions", die)
    with pytest.raises(KeyboardInterrupt):
        admit(site, operator, "node-0", keys[0])
    monkeypatch.undo()
    admit(site, operator, "node-0", keys[0])
    assert operator.calls == [("register", "node-0")]


def test_a_revocation_takes_the_place_even_if_the_server_is_not_there(site: Site, keys: list[Path]) -> None:
    operator = FakeOperator()
    _, mark = admit(site, operator, "node-0", keys[0])
    operator.trouble = MachineError("no")
    with pytest.raises(MachineError):
        revoke(site, operator, "node-0")
    assert read_admissions(site).client_of("node-0", mark) is None


def test_a_run_is_followed_line_by_line_to_its_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are half written are shown when they are whole; those that come with the end are not missed."""
    log = site.runs / "3.log"
    steps = iter([b"round 1 of 2, 0.1 s\nrou", b"nd 2 of 2, 0.1 s\n", b"The run is in /out.\n"])

    class Growing(FakeOperator):
        def run(self, run: int) -> RunStatus:
            with log.open("ab") as file:
                file.write(next(steps))
            return super().run(run)

    monkeypatch.setattr(module, "LOOK", 0.0)
    running, ended = RunStatus(3, "running"), RunStatus(3, "finished:completed")
    shown: list[str] = []
    assert follow(site, Growing(said=[running, running, ended]), 3, shown.append) == ended
    assert shown == ["round 1 of 2, 0.1 s", "round 2 of 2, 0.1 s", "The run is in /out."]


def test_a_runs_last_state_is_read_and_a_damaged_one_is_none(site: Site) -> None:
    assert run_state(site, 4) == {}
    StatusCallback(site.runs / "4.json", say=lambda line: None).absent(1, "node-1", 2, "late")
    assert run_state(site, 4)["absent"][0]["client"] == "node-1"
    for damage in (b"", b"[]", b"{"):
        (site.runs / "4.json").write_bytes(damage)
        assert run_state(site, 4) == {}


@pytest.mark.parametrize(
    ("details", "status", "kind", "words"),
    [
        ("[2] rounds = -1 is too small.", "finished:failed", InputError, "rounds = -1 is too small."),
        ("[3] public.npz is damaged.", "finished:failed", DataError, "public.npz is damaged."),
        ("[4] fewer than min-replies", "finished:failed", RunError, "fewer than min-replies"),
        ("No heartbeat received", "finished:failed", RunError, "No heartbeat received"),
        ("", "finished:failed", RunError, "The run failed; its log says why."),
        ("", "finished:stopped", RunError, "The run was stopped. Committed rounds are kept"),
    ],
)
def test_a_command_exits_with_the_runs_real_result(details: str, status: str, kind: type[RunError], words: str) -> None:
    first, _, second = status.partition(":")
    found = SimpleNamespace(run_id=1, status=SimpleNamespace(status=first, sub_status=second, details=details))
    with pytest.raises(kind) as raised:
        _raise_for(_status(found))
    assert type(raised.value) is kind
    assert str(raised.value).startswith(words)


def test_a_run_that_completed_is_no_error() -> None:
    _raise_for(RunStatus(1, "finished:completed"))


def test_a_run_is_submitted_with_what_was_typed_and_all_nodes_as_clients(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("rounds = 5\n")
    typed = ["train.lr=0.5", "public.dataset=my files/p.npz"]
    config = _run_config(site, Path("mine.toml"), None, typed, Path("out"), None)
    found = read_run_config(config)
    assert (found.experiment.rounds, found.experiment.clients, found.experiment.train.lr) == (5, 2, 0.5)
    assert found.experiment.public.dataset == str(tmp_path / "my files" / "p.npz")
    assert found.out == tmp_path / "out"
    (tmp_path / "mine.toml").write_text("clients = 7\n")
    found = read_run_config(_run_config(site, Path("mine.toml"), None, [], None, None))
    assert found.experiment.clients == 7


def test_a_server_that_is_not_running_is_reported_with_the_command_that_starts_it(tmp_path: Path) -> None:
    keys = SiteKeys(host="127.0.0.1", port=1, operator_port=2, nodes=2)  # ports without a listener
    site = create_site(tmp_path / "site", keys)
    with pytest.raises(InputError, match="is not running: refprotofl deploy start"):
        FlowerOperator(site).nodes()
