"""`deploy doctor`: what it finds at a node, as it finds it."""

import json
import re
import shutil
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from tests.flower.breaking import shift_clock

from refprotofl.cli.entry import main
from refprotofl.deploy import doctor
from refprotofl.deploy.certificates import write_certificates
from refprotofl.deploy.doctor import Finding, examine
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.engines.flower.doctor import AHEAD, BEHIND, reach
from refprotofl.engines.flower.doors import ACTIVATE
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.records.folder import read_experiment

Kit = Callable[..., Path]

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def kit(apart: Path, tmp_path: Path) -> Kit:
    """A node's kit whose server is not there, with other keys where they are given."""

    def write(**changed: Any) -> Path:
        folder = tmp_path / "kit"
        folder.mkdir()
        found = {"server": NOWHERE, "name": "node-1", "data-path": str(apart / "client-1.npz"), "store": "store"}
        found |= {name.replace("__", "-"): value for name, value in changed.items()}
        (folder / "node.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in found.items()))
        return folder

    return write


def found(kit: Path, experiment: Experiment | None = None) -> dict[str, Finding]:
    def ask(kit: Path, config: NodeConfig) -> Iterator[Finding]:
        return reach(kit, config.name, config.address, dict)

    return {one.subject: one for one in examine(kit, experiment, ask)}


def changed(folder: Path, **keys: Any) -> Experiment:
    return read_experiment(folder).model_copy(update=keys)


class Answering(BaseHTTPRequestHandler):
    """Answers as a site's server does: 404 to unknown requests, 401 to a key that is not admitted."""

    def do_HEAD(self) -> None:
        known = self.headers.get("X-Key") == "admitted"
        self.send_response_only((204 if known else 401) if self.path == ACTIVATE else 404)
        ahead = self.server.ahead  # type: ignore[attr-defined]
        if ahead is not None:
            self.send_header("Date", formatdate(time.time() + ahead, usegmt=True))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path, ahead: float | None) -> Iterator[int]:
    """A server over TLS whose clock is ahead by this many seconds; None for one that sends no date."""
    folder.mkdir(exist_ok=True)
    write_certificates(folder, "127.0.0.1")
    made = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    made.ahead = ahead  # type: ignore[attr-defined]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    made.socket = context.wrap_socket(made.socket, server_side=True)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield int(made.server_address[1])
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize(
    ("ahead", "fine", "words"),
    [
        (0, True, r"^[0-4] s .* the server's\.$"),
        (100, True, r"^(9\d|10\d) s behind the server's\.$"),
        (400, False, r"^(39\d|40\d) s behind the server's; Flower allows less than 5 s ahead and 305 s behind"),
        (-20, False, r"^(1\d|2\d) s ahead of the server's; Flower allows less than 5 s ahead and 305 s behind"),
        (None, None, "^the server sends no date, so this clock could not be compared"),
    ],
)
def test_a_clock_that_flower_would_refuse_is_found(
    tmp_path: Path, ahead: float | None, fine: bool | None, words: str
) -> None:
    with serving(tmp_path / "server", ahead) as port:
        server, clock, _ = ask(tmp_path / "server", port)
    assert server.fine is True
    assert (clock.subject, clock.fine) == ("clock", fine)
    assert re.search(words, clock.words)


def ask(kit: Path, port: int, key: str = "") -> list[Finding]:
    return list(reach(kit, "node-1", ("127.0.0.1", port), lambda: {"X-Key": key}))


def test_the_bounds_are_flowers() -> None:
    assert (AHEAD, BEHIND) == (SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE)


@pytest.mark.parametrize(
    ("key", "fine", "words"),
    [
        ("admitted", True, "this node's key is admitted."),
        ("other", False, "refprotofl deploy admit SITE node-1 node.key.pub."),
    ],
)
def test_a_key_that_is_not_admitted_is_found(tmp_path: Path, key: str, fine: bool, words: str) -> None:
    with serving(tmp_path / "server", 0) as port:
        admission = ask(tmp_path / "server", port, key)[-1]
    assert (admission.subject, admission.fine) == ("admission", fine)
    assert words in admission.words


@pytest.mark.parametrize(("days", "words"), [(-4000, "ca.crt expired on"), (3, "ca.crt is not valid before")])
def test_an_authority_outside_its_dates_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, words: str
) -> None:
    shift_clock(monkeypatch, days)
    write_certificates(tmp_path, "127.0.0.1")
    monkeypatch.undo()
    (server,) = ask(tmp_path, 1)
    assert server.fine is False
    assert server.words.startswith(words)


def test_a_servers_certificate_that_expired_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its authority is still valid, as after a clock was wrong for a while."""
    with serving(tmp_path / "server", 0) as port:
        monkeypatch.setattr("refprotofl.engines.flower.doctor.ssl.create_default_context", expired_context)
        (server,) = ask(tmp_path / "server", port)
    assert (
        server.words == f"The certificate of 127.0.0.1:{port} has expired: the operator runs refprotofl deploy renew."
    )


def expired_context(**given: Any) -> ssl.SSLContext:
    """Return a context that finds every server's certificate expired."""

    class Context(ssl.SSLContext):
        def wrap_socket(self, *given: Any, **more: Any) -> ssl.SSLSocket:
            problem = ssl.SSLCertVerificationError("certificate has expired")
            problem.verify_message = "certificate has expired"
            raise problem

    return Context(ssl.PROTOCOL_TLS_CLIENT)


def test_another_deployments_certificate_is_found(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_certificates(tmp_path / "other", "127.0.0.1")
    with serving(tmp_path / "server", 0) as port:
        (server,) = ask(tmp_path / "other", port)
    assert server.fine is False
    assert "has no certificate signed by ca.crt" in server.words


def test_a_node_that_fits_is_timed(kit: Kit, apart: Path, undisturbed: Path) -> None:
    findings = found(kit(), read_experiment(undisturbed))
    assert [one.subject for one in findings.values() if one.fine is False] == ["server"]
    steps = -(-len(np.load(apart / "client-1.npz")["y_train"]) // 16)  # the batch size of `quick`, one epoch
    assert f"the {steps} steps of a round about" in findings["training"].words


def test_images_of_another_size_are_reported_and_nothing_is_lost(kit: Kit, undisturbed: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "large.npz", x=np.zeros((20, 9, 9), np.uint8), y=np.arange(20) % 10)
    findings = found(kit(data__path=str(tmp_path / "large.npz")), read_experiment(undisturbed))
    assert findings["data"].fine is False
    assert "its images are 9 x 9 with 1 channel, but the experiment's are 8 x 8" in findings["data"].words
    assert findings["training"] == Finding("training", None, "not timed: correct the findings above first.")


def test_code_that_the_node_does_not_allow_is_not_imported(
    kit: Kit, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile_method.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    findings = found(kit(), changed(undisturbed, method="hostile_method:Mine"))
    assert findings["run"].fine is False
    assert "names code that this node does not allow: method = 'hostile_method:Mine'" in findings["run"].words
    assert not (tmp_path / "imported").exists()


def test_a_budget_that_cannot_be_kept_is_found(kit: Kit, undisturbed: Path) -> None:
    bounded = read_experiment(undisturbed).refprotofl.model_copy(update={"keep": None, "uplink_budget": 20_000})
    findings = found(kit(uplink__budget=500), changed(undisturbed, refprotofl=bounded))
    assert findings["run"].fine is False
    assert "This node's uplink-budget = 500 bytes is too small" in findings["run"].words


def test_a_misspelt_key_is_found(kit: Kit) -> None:
    findings = found(kit(uplink_budget=500))
    assert findings["settings"].words == "node.toml: There is no key uplink_budget; did you mean uplink-budget?"


def test_a_function_next_to_the_config_is_found_from_anywhere(
    kit: Kit, apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kit(data__path="beside_the_config:load")
    (folder / "beside_the_config.py").write_text(
        f"import numpy as np\n\ndef load():\n    return dict(np.load({str(apart / 'client-1.npz')!r}))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # so that the path is put back
    assert found(Path("kit"))["data"].fine is True
    assert Path.cwd() == tmp_path


def test_without_an_experiment_it_says_what_is_needed(kit: Kit) -> None:
    findings = found(kit())
    needed = "give --experiment, an experiment.json or .toml from the operator."
    assert findings["data"].words.endswith(f"To check them against the experiment, {needed}")
    assert findings["training"] == Finding("training", None, f"not timed: {needed}")


def test_a_full_disk_is_found_with_advice_for_a_node(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refprotofl.deploy.doctor.shutil.disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    disk = found(kit())["disk"]
    assert disk.fine is False
    assert "; free space, or name another store" in disk.words
    assert "--resume" not in disk.words


def test_an_experiment_that_has_not_run_yet_is_checked_against_the_nodes_own_data(kit: Kit, tmp_path: Path) -> None:
    """Before the first run there is no experiment.json with what all images look like."""
    findings = found(kit(), load_experiment(preset="quick", settings=["clients=3"]))
    assert [one.subject for one in findings.values() if one.fine is False] == ["server"]
    assert "a step takes" in findings["training"].words


def test_the_command_makes_the_key_and_reports_each_finding_at_once(
    kit: Kit,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(undisturbed / "experiment.json", tmp_path / "exp.json")
    (tmp_path / "exp.toml").write_text("clients = 3\nmin-size = 10\n")
    found: list[str] = []
    folder = kit()
    step = doctor._step

    def last(*given: Any) -> Finding:
        found.append(capsys.readouterr().out)
        return step(*given)

    monkeypatch.setattr(doctor, "_step", last)

    def command(file: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["refprotofl", "deploy", "doctor", str(folder), "--experiment", file])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out + written.err

    code, shown = command(str(tmp_path / "exp.json"))
    assert code == 2
    assert "ok  run: code, data and budget are accepted" in found[0]
    assert "This node cannot take part yet: server." in shown
    assert "Path not found" in command(str(tmp_path / "other.json"))[1]
    with serving(tmp_path / "server", 0) as port:
        shutil.copy(tmp_path / "server" / "ca.crt", folder)
        config = (folder / "node.toml").read_text()
        (folder / "node.toml").write_text(config.replace(NOWHERE, f"127.0.0.1:{port}"))
        code, shown = command(str(tmp_path / "exp.toml"))
    assert code == 2
    assert "This node cannot take part yet: admission." in shown  # it signs, and is not known
    assert (folder / "node.key.pub").exists()
