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
from typing import Any

import numpy as np
import pytest
import uvicorn
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

from refprotofl.cli.entry import main
from refprotofl.deploy import doctor, reach
from refprotofl.deploy.certificates import write_certificates
from refprotofl.deploy.doctor import examine
from refprotofl.deploy.reach import Finding
from refprotofl.experiment import Experiment
from refprotofl.records.folder import read_experiment

Kit = Callable[..., Path]


@pytest.fixture
def kit(apart: Path, tmp_path: Path) -> Kit:
    """A node's kit that names no server, with other keys where they are given."""

    def write(**changed: Any) -> Path:
        folder = tmp_path / "kit"
        folder.mkdir()
        told = {"data-path": str(apart / "client-1.npz"), "store": "store", "client": 1}
        told |= {name.replace("__", "-"): value for name, value in changed.items()}
        (folder / "node.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items()))
        return folder

    return write


def found(kit: Path, experiment: Experiment | None = None) -> dict[str, Finding]:
    return {one.subject: one for one in examine(kit, experiment)}


def changed(folder: Path, **keys: Any) -> Experiment:
    return read_experiment(folder).model_copy(update=keys)


class Answering(BaseHTTPRequestHandler):
    """Says no to everything, as a SuperLink does to who is none of its own, at the time that the server has."""

    def do_HEAD(self) -> None:
        self.send_response_only(404)
        ahead = self.server.ahead  # type: ignore[attr-defined]
        if ahead is not None:
            self.send_header("Date", formatdate(time.time() + ahead, usegmt=True))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path, ahead: float | None) -> Iterator[int]:
    """A server over TLS whose clock is so far ahead of ours; None for one that does not tell."""
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
        (400, False, r"^(39\d|40\d) s behind the server's; Flower wants less than 5 s ahead and 305 s behind"),
        (-20, False, r"^(1\d|2\d) s ahead of the server's; Flower wants less than 5 s ahead and 305 s behind"),
        (None, None, "^the server does not tell the time, so this clock could not be compared"),
    ],
)
def test_a_clock_that_flower_would_refuse_is_found(
    tmp_path: Path, ahead: float | None, fine: bool | None, words: str
) -> None:
    with serving(tmp_path / "server", ahead) as port:
        server, clock = reach.reach(tmp_path / "server", "127.0.0.1", port)
    assert server.fine is True
    assert (clock.subject, clock.fine) == ("clock", fine)
    assert re.search(words, clock.words)


def test_the_bounds_are_flowers_and_its_server_tells_the_time() -> None:
    assert (reach.AHEAD, reach.BEHIND) == (SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE)
    assert uvicorn.Config("superlink:app").date_header


def test_another_deployments_certificate_is_found(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_certificates(tmp_path / "other", "127.0.0.1")
    with serving(tmp_path / "server", 0) as port:
        (server,) = reach.reach(tmp_path / "other", "127.0.0.1", port)
    assert server.fine is False
    assert "has no certificate that ca.crt vouches for" in server.words


def test_a_node_that_fits_is_timed(kit: Kit, apart: Path, undisturbed: Path) -> None:
    findings = found(kit(), read_experiment(undisturbed))
    assert [one.subject for one in findings.values() if one.fine is False] == []
    steps = -(-len(np.load(apart / "client-1.npz")["y_train"]) // 16)  # the batch size of `quick`, one epoch
    assert f"the {steps} steps of a round about" in findings["training"].words
    assert "until the SuperNode looks" in findings["messages"].words


def test_images_of_another_size_are_told_and_nothing_is_lost(kit: Kit, undisturbed: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "large.npz", x=np.zeros((20, 9, 9), np.uint8), y=np.arange(20) % 10)
    findings = found(kit(data__path=str(tmp_path / "large.npz")), read_experiment(undisturbed))
    assert findings["data"].fine is False
    assert "its images are 9 x 9 with 1 channel, but the experiment's 8 x 8 with 1 channel" in findings["data"].words
    assert findings["training"] == Finding("training", None, "not timed: mend what stands above first.")


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
    assert "This node's uplink-budget = 500 bytes cannot be kept" in findings["run"].words


def test_a_misspelt_key_is_found(kit: Kit) -> None:
    findings = found(kit(uplink_budget=500))
    assert findings["config"].words == "--node-config: There is no key uplink_budget; did you mean uplink-budget?"


def test_a_function_beside_the_config_is_found_from_anywhere(
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
    needed = "give --experiment, the experiment.json of the run's folder on the server."
    assert findings["data"].words.endswith(f"To check them against the experiment, {needed}")
    assert findings["training"] == Finding("training", None, f"not timed: {needed}")


def test_the_command_reads_the_named_file_and_tells_each_finding_at_once(
    kit: Kit,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(undisturbed / "experiment.json", tmp_path / "exp.json")
    told: list[str] = []

    def last() -> Finding:
        told.append(capsys.readouterr().out)
        return Finding("messages", True, "none.")

    monkeypatch.setattr(doctor, "_messages", last)

    def command(file: str) -> int:
        monkeypatch.setattr("sys.argv", ["refprotofl", "deploy", "doctor", str(folder), "--experiment", file])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    folder = kit()
    assert command(str(tmp_path / "exp.json")) == 0
    assert "ok  training: a step takes" in told[0]
    assert command(str(tmp_path / "other.json")) == 2
    assert "there is no such file" in capsys.readouterr().err
