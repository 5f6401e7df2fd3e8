"""The page over HTTP: only for GET requests with the token that name this host."""

import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.report.live import web_server as live_server
from refprotofl.report.live.follower import Follower
from refprotofl.report.live.web_server import MOST_CONNECTIONS, LiveServer, listen


@pytest.fixture
def folder(brief_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(brief_run, tmp_path / "run"))


@pytest.fixture
def server(folder: Path) -> Iterator[LiveServer]:
    made = LiveServer(Follower(folder), "127.0.0.1", listen("127.0.0.1", 0), "t0ken")
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join(5)


def port(server: LiveServer) -> int:
    return int(server.server_address[1])


def ask(
    server: LiveServer, path: str = "/t0ken/", method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port(server), timeout=60)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_the_page_comes_with_a_policy_of_its_own(server: LiveServer) -> None:
    status, headers, body = ask(server)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert f'<script nonce="{nonce}">'.encode() in body
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert nonce not in ask(server)[1]["content-security-policy"]


def test_the_data_are_the_page_s(server: LiveServer) -> None:
    status, headers, body = ask(server, "/t0ken/page.json")
    page = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert page["progress"]["done"] == 3
    assert page["progress"]["ended"] is True


@pytest.mark.parametrize(
    "path", ["/", "/t0ken", "/t0ken/other", "/wrong/", "/t0ken/../t0ken/", "/t0ken/%2e%2e/", "/x" * 5000]
)
def test_a_request_without_the_address_gets_nothing(server: LiveServer, path: str) -> None:
    status, _, body = ask(server, path)
    assert status in (404, 414)
    assert b"digits" not in body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""])
def test_a_foreign_host_is_refused(server: LiveServer, host: str) -> None:
    status, _, body = ask(server, headers={"Host": host.format(port=port(server))})
    assert status == 421
    assert b"digits" not in body


def test_this_machine_by_its_name_is_no_foreign_host(server: LiveServer) -> None:
    assert ask(server, headers={"Host": f"localhost:{port(server)}"})[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_only_get_is_answered(server: LiveServer, method: str) -> None:
    status, headers, _ = ask(server, method=method)
    assert (status, headers["allow"]) == (405, "GET")


def test_another_site_s_page_gets_nothing(server: LiveServer) -> None:
    assert ask(server, headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert ask(server, headers={"Sec-Fetch-Site": "same-origin"})[0] == 200


def events(server: LiveServer, number: int, after: str | None = None) -> list[dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port(server), timeout=60)
    connection.request("GET", "/t0ken/events", headers={} if after is None else {"Last-Event-ID": after})
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    found: list[dict[str, str]] = []
    now: dict[str, str] = {}
    while len(found) < number:
        line = answer.readline().decode().rstrip("\n")
        if not line and "event" in now:
            found.append(now)
        if not line:
            now = {}
        else:
            name, _, value = line.partition(": ")
            now[name] = value
    connection.close()
    return found


def test_events_are_numbered_by_their_lines(server: LiveServer, folder: Path) -> None:
    names = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
    found = events(server, len(names))
    assert [one["event"] for one in found] == names
    assert [int(one["id"]) for one in found] == list(range(1, len(names) + 1))


def test_a_viewer_that_reconnects_receives_the_missed_events(server: LiveServer, folder: Path) -> None:
    lines = len((folder / "events.jsonl").read_text().splitlines())
    assert [one["id"] for one in events(server, 2, str(lines - 2))] == [str(lines - 1), str(lines)]
    assert events(server, 1, "<script>")[0]["id"] == "1"


def test_a_new_line_is_sent_at_once(server: LiveServer, folder: Path) -> None:
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    server.follower.page()
    timer = threading.Timer(0.3, lambda: path.write_bytes(path.read_bytes() + lines[-1]))
    timer.start()
    (last,) = events(server, 1, str(len(lines) - 1))
    assert (last["event"], last["id"]) == ("end", str(len(lines)))
    timer.join()


def test_more_lookers_on_than_it_serves_are_turned_away_and_the_others_stay(server: LiveServer) -> None:
    held = [socket.create_connection(("127.0.0.1", port(server)), timeout=60) for _ in range(MOST_CONNECTIONS)]
    for one in held:
        one.sendall(f"GET /t0ken/events HTTP/1.1\r\nHost: 127.0.0.1:{port(server)}\r\n\r\n".encode())
        assert one.recv(15) == b"HTTP/1.1 200 OK"
    late = socket.create_connection(("127.0.0.1", port(server)), timeout=60)
    late.sendall(f"GET /t0ken/ HTTP/1.1\r\nHost: 127.0.0.1:{port(server)}\r\n\r\n".encode())
    with suppress(ConnectionError):  # closed in this way, or in that
        assert late.recv(10) == b""
    for one in (*held, late):
        one.close()


def drip(connection: socket.socket, stop: threading.Event) -> None:
    """A byte now and then, so that no single read takes long."""
    with suppress(OSError):
        while not stop.wait(0.1):
            connection.sendall(b"a")


@pytest.mark.parametrize("opening", [b"", b"GET /t0ken/ HTTP/1.1\r\nHost: "])
def test_slow_connections_block_no_viewer(server: LiveServer, monkeypatch: pytest.MonkeyPatch, opening: bytes) -> None:
    """Open more connections than may wait: an honest request is still answered at once."""
    monkeypatch.setattr(live_server, "MOST_WAITING", 20)
    stop = threading.Event()
    slow = [socket.create_connection(("127.0.0.1", port(server)), timeout=10) for _ in range(30)]
    for one in slow:
        one.sendall(opening)
        threading.Thread(target=drip, args=(one, stop), daemon=True).start()
    for _ in range(5):
        began = time.monotonic()
        assert ask(server)[0] == 200
        assert time.monotonic() - began < 3
    stop.set()
    for one in slow:
        one.close()


def test_a_request_has_a_few_seconds_in_all(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "ARRIVAL", 0.5)
    began, stop = time.monotonic(), threading.Event()
    slow = socket.create_connection(("127.0.0.1", port(server)), timeout=10)
    threading.Thread(target=drip, args=(slow, stop), daemon=True).start()
    with suppress(ConnectionError):
        assert slow.recv(10) == b""
    assert time.monotonic() - began < 5
    stop.set()
    slow.close()


def test_a_connection_that_stays_open_is_served_again_and_closed_when_idle(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server, "ARRIVAL", 1.0)
    connection = http.client.HTTPConnection("127.0.0.1", port(server), timeout=10)
    for _ in range(3):
        connection.request("GET", "/t0ken/page.json")
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
    assert connection.sock.recv(1) == b""
    connection.close()


def test_a_request_without_the_token_takes_no_connection(server: LiveServer) -> None:
    held = [socket.create_connection(("127.0.0.1", port(server)), timeout=10) for _ in range(3 * MOST_CONNECTIONS)]
    for one in held:
        one.sendall(f"GET /guess/events HTTP/1.1\r\nHost: 127.0.0.1:{port(server)}\r\n\r\n".encode())
    assert ask(server)[0] == 200
    for one in held:
        one.close()


def test_headers_without_end_are_cut_off(server: LiveServer) -> None:
    greedy = socket.create_connection(("127.0.0.1", port(server)), timeout=10)
    with suppress(ConnectionError):
        greedy.sendall(b"GET /t0ken/ HTTP/1.1\r\n")
        for _ in range(40):
            greedy.sendall(b"X: " + b"a" * 60_000 + b"\r\n")
        assert greedy.recv(10) == b""
    greedy.close()


def test_a_damaged_folder_is_a_note_on_the_page_not_an_error(server: LiveServer, folder: Path) -> None:
    (folder / "events.jsonl").write_text('{"event": "</script>"\n')
    status, _, body = ask(server, "/t0ken/page.json")
    assert status == 200
    assert "is not a valid event" in json.loads(body)["notes"][0]


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path, brief_run: Path) -> None:
    follower = Follower(tmp_path / "run")
    assert follower.page().progress == {"waiting": True}
    shutil.copytree(brief_run, tmp_path / "run")
    assert follower.page().progress is not None
    assert json.loads(follower.page_json())["progress"]["done"] == 3


def test_a_folder_of_runs_is_watched_as_one_page(tmp_path: Path, brief_run: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(brief_run, tmp_path / "grid" / name)
    (tmp_path / "grid" / "b" / "experiment.json").unlink()
    assert Follower(tmp_path / "grid").page().title.startswith("refprotofl on digits")
    shutil.copytree(brief_run, tmp_path / "grid" / "c")
    assert "1 run" in Follower(tmp_path / "grid").page().subtitle  # the same experiment counts once


def test_a_port_that_is_taken_is_an_error_message(server: LiveServer) -> None:
    with pytest.raises(InputError, match="Cannot listen at"):
        listen("127.0.0.1", port(server))
