"""A real SuperLink behind its two doors, attacked from outside: unauthorised requests are not answered."""

import asyncio
import http.client
import io
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import Metadata, ObjectTree
from flwr.proto.node_pb2 import Node

from refprotofl.core.errors import InputError
from refprotofl.deploy.admission import read_admissions
from refprotofl.deploy.demo import _free_ports
from refprotofl.deploy.kits import PUBLIC_KEY, load_key, write_kits
from refprotofl.deploy.operator import admit, revoke
from refprotofl.deploy.relay import Address, Relay
from refprotofl.deploy.server_process import process_of, start, stop
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.engines.flower import internals
from refprotofl.engines.flower.control import FlowerOperator
from refprotofl.engines.flower.doors import ACTIVATE, HEADERS, NODE_ROUTES, OPERATOR_ROUTES
from refprotofl.engines.flower.fleet_client import FleetClient
from refprotofl.engines.flower.superlink import NODE_REQUESTS

BIN = Path(sys.executable).parent
Made = TypeVar("Made")

PROTOBUF = {"content-type": "application/protobuf"}
SECRET = internals.SECRET_HEADER
REFUSED = (401, 404)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose server runs, with small limits."""
    with running(tmp_path_factory.mktemp("doors") / "site") as made:
        yield made


@contextmanager
def running(folder: Path, **keys: object) -> Iterator[Site]:
    port, operator_port = _free_ports()
    wanted = {"host": "127.0.0.1", "port": port, "operator_port": operator_port, "nodes": 3, "max_message": 8_000_000}
    made = create_site(folder, SiteKeys.model_validate({**wanted, **keys}))
    write_kits(made)
    start(made)
    try:
        yield made
    finally:
        stop(made)


def trusted(site: Site) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(site.authority))


def client(site: Site, port: int) -> httpx.Client:
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted(site), timeout=60)


def devices(site: Site) -> httpx.Client:
    return client(site, site.keys.port)


def operators(site: Site) -> httpx.Client:
    return client(site, site.keys.operator_port)


def admitted(site: Site, number: int) -> ec.EllipticCurvePrivateKey:
    """The key of a node that the site admits."""
    name, kit = f"node-{number}", site.kit(number)
    key = load_key(kit, name)
    if name not in read_admissions(site).nodes:
        admit(site, FlowerOperator(site), name, kit / PUBLIC_KEY)
    return key


def fleet(site: Site, number: int) -> FleetClient:
    assert site.authority is not None
    return FleetClient(f"127.0.0.1:{site.keys.port}", site.authority.read_bytes(), admitted(site, number))


def once(do: Callable[[], Made], /) -> Made:
    return do()


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Every route of the Flower that is installed, as the program itself lists them, with those that we took out."""
    folder = tmp_path_factory.mktemp("routes") / "site"
    port, operator_port = _free_ports()
    made = create_site(folder, SiteKeys(host="127.0.0.1", port=port, operator_port=operator_port, nodes=1))
    script = (
        "import json, sys; from pathlib import Path; from refprotofl.deploy.site import read_site; "
        "from refprotofl.engines.flower import internals; "
        "print(json.dumps(internals.routes_of(internals.create_app(read_site(Path(sys.argv[1]))))))"
    )
    done = subprocess.run(
        [str(BIN / "python"), "-c", script, str(made.folder)], capture_output=True, text=True, check=True, timeout=300
    )
    found = [(method, path) for method, path in json.loads(done.stdout.splitlines()[-1])]
    assert len(found) > 60
    return [*found, ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/docs/oauth2-redirect"), ("GET", "/")]


def test_the_routes_that_the_doors_know_are_routes_of_flower(routes: list[tuple[str, str]]) -> None:
    assert {("POST", path) for path in (*NODE_ROUTES, *OPERATOR_ROUTES)} <= set(routes)


def test_an_outsider_is_answered_nothing_by_the_devices_door(site: Site, routes: list[tuple[str, str]]) -> None:
    stranger = ec.generate_private_key(ec.SECP384R1())
    secret = {SECRET: site.secret()}  # the operator's secret is worth nothing here
    with devices(site) as line:
        for method, path in routes:
            for headers in ({}, secret, internals.signed_headers(stranger)):
                found = line.request(method, path, headers={**PROTOBUF, **headers}, content=b"")
                assert found.status_code in REFUSED, (method, path, headers)
                assert found.content == b""


def test_only_what_a_node_asks_passes_the_devices_door(site: Site, routes: list[tuple[str, str]]) -> None:
    key = admitted(site, 0)
    with devices(site) as line:
        for method, path in routes:
            headers = {**PROTOBUF, **internals.signed_headers(key)}
            status = line.request(method, path, headers=headers, content=b"").status_code
            assert (status == 404) == (path not in NODE_ROUTES or method != "POST"), (method, path, status)


def test_the_operators_door_opens_to_the_secret_alone(site: Site, routes: list[tuple[str, str]]) -> None:
    key, wrong = admitted(site, 0), "x" * len(site.secret())
    with operators(site) as line:
        for method, path in routes:
            for headers in ({}, {SECRET: wrong}, {SECRET: ""}, internals.signed_headers(key)):
                found = line.request(method, path, headers={**PROTOBUF, **headers}, content=b"")
                assert found.status_code in REFUSED, (method, path, headers)
                assert found.content == b""
        listed = line.post("/v1/control/list-nodes", headers={**PROTOBUF, SECRET: site.secret()}, content=b"")
        assert listed.status_code == 200
        for path in ("/docs", "/openapi.json", "/v1/control/create-federation", "/v1/runtime/acquire-task"):
            assert line.post(path, headers={**PROTOBUF, SECRET: site.secret()}).status_code == 404


def test_the_secret_is_for_its_owner_alone(site: Site) -> None:
    path = site.server / "operator.secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(site.secret()) >= 40


def test_a_relay_before_the_operators_door_opens_nothing(site: Site) -> None:
    """Through a relay or a reverse proxy everyone has a loopback address."""

    async def ask() -> int:
        relay = Relay(Address("127.0.0.1", site.keys.operator_port))
        asking = httpx.AsyncClient(verify=trusted(site), timeout=60)
        async with relay.listen(Address("127.0.0.1", 0)) as address, asking as line:
            url = f"https://127.0.0.1:{address.port}/v1/control/list-runs"
            return int((await line.post(url, headers=PROTOBUF, content=b"")).status_code)

    assert asyncio.run(ask()) == 401


def test_what_listens_where(site: Site) -> None:
    """The operator's port is on loopback, and so is all of a site whose host is."""
    listening = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, port = local.split(":")
        if state == "0A" and int(port, 16) in (site.keys.port, site.keys.operator_port):
            listening.add((address, int(port, 16)))
    assert listening == {("0100007F", site.keys.port), ("0100007F", site.keys.operator_port)}


def test_an_address_that_is_not_this_machines_has_to_be_named(tmp_path: Path) -> None:
    keys = SiteKeys(host="server.invalid", port=1, operator_port=2, nodes=1)
    with pytest.raises(InputError, match="--bind"):
        start(create_site(tmp_path / "site", keys))


def memory(site: Site) -> int:
    """Bytes that the server's process has in memory."""
    process = process_of(site)
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def stream(site: Site, headers: dict[str, str], announced: int | None, most: int, path: str) -> int:
    """Sends a body of up to `most` bytes, as long as it is taken; gives the status of the answer."""
    line = http.client.HTTPSConnection("127.0.0.1", site.keys.port, context=trusted(site), timeout=120)
    with closing(line):
        line.putrequest("POST", path)
        for name, value in {**PROTOBUF, **headers}.items():
            line.putheader(name, value)
        line.putheader(*(("Content-Length", str(announced)) if announced else ("Transfer-Encoding", "chunked")))
        line.endheaders()
        chunk = bytes(1_000_000)
        with suppress(OSError):
            for _ in range(most // len(chunk)):
                line.send(chunk if announced else b"f4240\r\n" + chunk + b"\r\n")
        return line.getresponse().status


@pytest.mark.parametrize("announced", [600_000_000, None])
def test_a_large_body_of_an_outsider_is_not_read(site: Site, announced: int | None) -> None:
    before = memory(site)
    with suppress(OSError):  # a connection that is ended while it is written to may lose its answer
        assert stream(site, {}, announced, 600_000_000, ACTIVATE) == 401
    assert memory(site) - before < 30_000_000


@pytest.mark.parametrize("announced", [600_000_000, None])
def test_a_large_body_of_a_node_is_cut_off(site: Site, announced: int | None) -> None:
    before, key = memory(site), admitted(site, 0)
    with suppress(OSError):
        status = stream(site, internals.signed_headers(key), announced, 100_000_000, "/v1/fleet/push-object")
        assert status == 413
    assert memory(site) - before < 60_000_000


def test_a_body_larger_than_announced_does_no_harm(site: Site) -> None:
    with raw(site) as line:
        line.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n" + bytes(100_000))
        assert line.recv(100).startswith(b"HTTP/1.1 401")
    assert is_admitted(site, admitted(site, 0))


def is_admitted(site: Site, key: ec.EllipticCurvePrivateKey) -> bool:
    with devices(site) as line:
        status = int(line.head(ACTIVATE, headers=internals.signed_headers(key)).status_code)
    assert status in (204, 401)
    return status == 204


@contextmanager
def raw(site: Site) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection(("127.0.0.1", site.keys.port), timeout=60)
    with trusted(site).wrap_socket(plain, server_hostname="127.0.0.1") as line:
        yield line


def seconds_until_closed(line: socket.socket, feed: Callable[[], bytes]) -> float:
    """Return the lifetime of a connection to which a byte is written every half second."""
    begun, ended = time.monotonic(), threading.Event()

    def read() -> None:
        with suppress(OSError):
            while line.recv(1000):
                pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    while time.monotonic() - begun < 12 * HEADERS and not ended.wait(0.5):
        with suppress(OSError):
            line.sendall(feed())
    return time.monotonic() - begun


def test_headers_that_trickle_in_are_not_waited_for(site: Site) -> None:
    with raw(site) as line:
        line.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\n")
        assert seconds_until_closed(line, lambda: b"x") < 4 * HEADERS


def test_a_handshake_that_does_not_come_is_not_waited_for(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.keys.port), timeout=60) as line:
        assert seconds_until_closed(line, lambda: b"") < 4 * HEADERS


def test_headers_without_end_are_refused(site: Site) -> None:
    before = memory(site)
    with raw(site) as line, suppress(OSError):
        line.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\n")
        for _ in range(50):
            line.sendall(b"x: " + b"y" * 1_000_000 + b"\r\n")
    assert memory(site) - before < 30_000_000


def test_half_open_connections_block_no_node(tmp_path: Path) -> None:
    """Open as many connections as the file limit allows, more than one address may have."""
    port, operator_port = _free_ports()
    keys = SiteKeys(host="127.0.0.1", port=port, operator_port=operator_port, nodes=3)
    site = create_site(tmp_path / "site", keys)
    write_kits(site)
    command = f"ulimit -n 1024; exec {BIN / 'refprotofl'} deploy start {site.folder}"
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=120)
    try:
        key = admitted(site, 0)
        with ExitStack() as opened:
            for _ in range(1003):
                opened.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=60)))
            assert is_admitted(site, key)
            assert FlowerOperator(site).runs() == []
    finally:
        stop(site)


def test_an_app_with_code_is_refused_and_never_runs(site: Site, tmp_path: Path) -> None:
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.proto.fab_pb2 import Fab
    from flwr.supercore.control import ControlHttpClient

    written = tmp_path / "written"
    code = f"from pathlib import Path\nPath({str(written)!r}).touch()\n"
    project = (
        '[project]\nname = "refprotofl"\nversion = "0.1.0"\n[tool.flwr.app]\npublisher = "refprotofl"\n'
        '[tool.flwr.app.components]\nserverapp = "evil:app"\nclientapp = "evil:app"\n'
        '[tool.flwr.app.config]\npreset = ""\n'
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pyproject.toml", project)
        archive.writestr("evil.py", code)
    authority = site.server / "ca.crt"
    line = ControlHttpClient.from_server_address(
        site.operator_address, False, authority.read_bytes(), interceptors=[internals.SecretInterceptor(site.secret())]
    )
    before = FlowerOperator(site).runs()
    requests = (
        StartRunRequest(fab=Fab(hash_str="", content=packed.getvalue())),
        StartRunRequest(app_spec="@someone/evil"),
        StartRunRequest(),
    )
    with line:
        for request in requests:
            with pytest.raises(httpx.HTTPStatusError) as refused:
                line.StartRun(request)
            assert refused.value.response.status_code == 403
    assert FlowerOperator(site).runs() == before
    assert not written.exists()


def test_a_revoked_key_is_out_at_once_and_for_good(site: Site) -> None:
    key = admitted(site, 1)
    node = fleet(site, 1)
    node.activate()
    assert node.pull(once) is None
    revoke(site, FlowerOperator(site), "node-1")
    with pytest.raises(httpx.HTTPStatusError) as refused:
        node.pull(once)
    assert refused.value.response.status_code == 401
    node.close()
    assert not is_admitted(site, key)
    with pytest.raises(InputError, match="revoked"):
        admit(site, FlowerOperator(site), "node-1", site.kit(1) / PUBLIC_KEY)


def test_a_node_cannot_speak_for_another(site: Site) -> None:
    node = fleet(site, 2)
    node.activate()
    try:
        for sender, answers in ((12345, "a" * 64), (1, ""), (node._node.node_id, "")):
            metadata = Metadata(run_id=1, src_node_id=sender, dst_node_id=1, reply_to_message_id=answers)
            request = PushMessagesRequest(
                node=node._node, messages_list=[MessageProto(metadata=metadata)], message_object_trees=[ObjectTree()]
            )
            with pytest.raises(httpx.HTTPStatusError) as refused:
                node._client.PushMessages(request)
            assert refused.value.response.status_code == 403
        with pytest.raises(httpx.HTTPStatusError) as refused:
            node._client.PullMessages(PullMessagesRequest(node=Node(node_id=12345)))
        assert refused.value.response.status_code == 401
    finally:
        node.close()


def test_asking_whether_a_key_is_admitted_holds_no_connection(site: Site) -> None:
    key = admitted(site, 0)
    with raw(site) as line:
        head = f"HEAD {ACTIVATE} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n"
        signed = "".join(f"{name}: {value}\r\n" for name, value in internals.signed_headers(key).items())
        line.sendall(f"{head}{signed}\r\n".encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 413")
        assert seconds_until_closed(line, lambda: b"x") < HEADERS


def test_one_key_has_few_connections(site: Site) -> None:
    """A hostile node that holds connections open never has more than its own limit."""
    key, other = admitted(site, 0), admitted(site, 2)
    statuses = []
    with ExitStack() as opened:
        for _ in range(NODE_REQUESTS + 5):
            line = opened.enter_context(raw(site))
            signed = "".join(f"{name}: {value}\r\n" for name, value in internals.signed_headers(key).items())
            head = (
                "POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\nexpect: 100-continue\r\n"
            )
            line.sendall(f"{head}{signed}content-type: application/protobuf\r\n\r\n".encode())
            statuses.append(line.recv(100)[9:12])
        assert statuses.count(b"429") == 5
        assert is_admitted(site, other)


def test_an_insecure_site_stays_on_this_machine(tmp_path: Path) -> None:
    keys = {"host": "127.0.0.1", "port": 1, "operator_port": 2, "nodes": 1, "insecure": True}
    with pytest.raises(InputError, match="one machine"):
        create_site(tmp_path / "open", SiteKeys.model_validate({**keys, "host": "server.example"}))
    made = create_site(tmp_path / "site", SiteKeys.model_validate(keys))
    with pytest.raises(InputError, match="this machine only"):
        start(made, "0.0.0.0")


def test_an_insecure_site_has_an_operators_door_all_the_same(tmp_path: Path) -> None:
    with running(tmp_path / "site", insecure=True) as site:
        with httpx.Client(base_url=f"http://{site.operator_address}", timeout=60) as line:
            assert line.post("/v1/control/list-runs", headers=PROTOBUF, content=b"").status_code == 401
        assert FlowerOperator(site).runs() == []
