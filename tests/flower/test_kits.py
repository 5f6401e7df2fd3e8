"""The files that `deploy init` writes for the server and the nodes, their modes, and starting a node with them."""

import os
import signal
import stat
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from tests.flower.loopback import BIN
from tests.flower.site import PATIENCE, wait_for

from refprotofl.core.errors import DataError, InputError
from refprotofl.deploy.admission import fingerprint, read_public_key
from refprotofl.deploy.kits import load_key, write_kits
from refprotofl.deploy.node_config import read_node_config
from refprotofl.deploy.site import Site, SiteKeys, create_site, read_site

TOOLS = ("sh", "dirname", "mkdir", "sleep", "touch")


def make(folder: Path, host: str = "127.0.0.1", *, insecure: bool = False, nodes: int = 1) -> Site:
    keys = SiteKeys(host=host, port=8443, operator_port=8444, nodes=nodes, insecure=insecure)
    site = create_site(folder, keys)
    write_kits(site)
    return site


@pytest.fixture
def made(tmp_path: Path) -> Site:
    return make(tmp_path / "site", insecure=True)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with what every system has."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(next(Path(at) / name for at in ("/usr/bin", "/bin") if (Path(at) / name).exists()))
    return folder


def add(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def test_a_node_without_its_environment_says_so_and_ends(made: Site, programs: Path) -> None:
    command = [str(made.kit(0) / "start.sh")]
    done = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert done.stderr == (
        "refprotofl is not on the PATH: activate the environment that has refprotofl[flower], then start again.\n"
    )


@pytest.mark.parametrize("lives", [False, True], ids=["while-it-rests", "while-it-runs"])
def test_a_terminated_node_ends_at_once_and_after_its_children(made: Site, programs: Path, lives: bool) -> None:
    kit = made.kit(0)
    ends = "trap 'sleep 1; touch ended; exit 0' TERM; touch started; while :; do sleep 0.1; done"
    add(programs, "refprotofl", ends if lives else "touch started; exit 4")
    node = subprocess.Popen(
        [str(kit / "start.sh")], env={"PATH": str(programs), "NODE_RETRY": "60"}, start_new_session=True
    )
    try:
        wait_for((kit / "started").exists, PATIENCE, lambda: "it was not started")
        time.sleep(0.5)
        os.kill(node.pid, signal.SIGTERM)
        assert node.wait(timeout=60) == 0
        assert (kit / "ended").exists() is lives
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_owner_reads_what_is_secret(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        site = make(tmp_path / "site", nodes=2)
        load_key(site.kit(0), "node-0")
    finally:
        os.umask(before)
    secrets = [site.server / name for name in ("ca.key", "server.key", "operator.secret")] + [site.kit(0) / "node.key"]
    assert [mode(path) for path in secrets] == [0o600] * 4
    assert [mode(path) for path in (site.folder, site.server, site.runs, site.home)] == [0o700] * 4
    assert {path.name: mode(path) for path in site.kit(1).iterdir()} == {
        "ca.crt": 0o644,
        "node.toml": 0o644,
        "start.sh": 0o755,
        "refprotofl-node.service": 0o644,
        "Containerfile": 0o644,
    }
    for name in ("ca.key", "server.key", "operator.secret"):
        assert not list((site.folder / "kits").rglob(name))


def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    site = make(tmp_path / "site")
    assert len(site.secret()) >= 40
    (site.server / "operator.secret").chmod(0o644)
    with pytest.raises(DataError, match="Others can read the operator's secret: chmod 600"):
        site.secret()


def test_a_site_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    site = make(tmp_path / "site", nodes=2)
    assert read_site(site.folder) == site
    text = (site.folder / "site.toml").read_text()
    (site.folder / "site.toml").write_text(text.replace("max-message = 64000000", 'max-message = "2 MB"'))
    assert read_site(site.folder).keys.max_message == 2_000_000
    (site.folder / "site.toml").write_text(text + "max-mesage = 7\n")
    with pytest.raises(InputError, match="max-mesage"):
        read_site(site.folder)
    with pytest.raises(InputError, match=r"is not a site\. Make one with: refprotofl deploy init"):
        read_site(tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"host": "server:9000"}, "--host server:9000: it has a colon"),
        ({"host": "192.0.2.1", "insecure": True}, "--insecure is for trials on one machine"),
        ({"operator_port": 8443}, "--port and --operator-port are both 8443"),
    ],
)
def test_what_cannot_be_a_site_is_refused_before_anything_is_written(
    tmp_path: Path, changed: dict[str, object], words: str
) -> None:
    keys = SiteKeys(host="127.0.0.1", port=8443, operator_port=8444, nodes=1).model_copy(update=changed)
    with pytest.raises(InputError, match=words):
        create_site(tmp_path / "site", keys)
    assert not (tmp_path / "site").exists()


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    site = make(tmp_path / "site")
    before = site.secret()
    with pytest.raises(InputError, match="exists and is not empty"):
        make(tmp_path / "site")
    assert site.secret() == before


@pytest.mark.parametrize(("host", "address"), [("::1", ("::1", 8443)), ("server.example", ("server.example", 8443))])
def test_a_kit_names_its_server_and_its_node(tmp_path: Path, host: str, address: tuple[str, int]) -> None:
    site = make(tmp_path / "site", host, nodes=2)
    config = read_node_config(site.kit(1))
    assert config.address == address
    assert (config.name, config.client, config.folder) == ("node-1", None, (site.kit(1) / "store").absolute())


def test_every_key_that_a_kit_shows_is_one_that_a_node_takes(made: Site) -> None:
    path = made.kit(0) / "node.toml"
    lines = path.read_text().splitlines()[1:]
    path.write_text("\n".join(line.removeprefix("# ") for line in lines))
    assert len(tomllib.loads(path.read_text())) == 10
    config = read_node_config(made.kit(0))
    assert (config.look_every, config.keep_runs, config.hold_out) == (3, 3, 0.2)  # the values shown are the defaults


def test_a_key_is_made_once_and_its_public_part_is_what_the_operator_reads(tmp_path: Path) -> None:
    key = load_key(tmp_path, "node-0")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert load_key(tmp_path, "node-0").private_numbers() == key.private_numbers()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert sorted(before) == ["node.key", "node.key.pub"]
    public = load_ssh_public_key(before["node.key.pub"])
    assert public == key.public_key()
    assert len(fingerprint(read_public_key(tmp_path / "node.key.pub"))) == 64
    (tmp_path / "node.key.pub").write_text("another's")
    load_key(tmp_path, "node-0")
    assert (tmp_path / "node.key.pub").read_bytes() == before["node.key.pub"]
    (tmp_path / "node.key").write_bytes(b"?")
    with pytest.raises(DataError, match=r"node\.key is damaged: delete it"):
        load_key(tmp_path, "node-0")


@pytest.mark.parametrize("text", [b"", b"ssh-rsa AAAA", b"x" * 20_000, b"\xff\xfe"])
def test_what_is_no_public_key_is_not_admitted(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "node.key.pub").write_bytes(text)
    with pytest.raises(InputError, match=r"is not a node's public key"):
        read_public_key(tmp_path / "node.key.pub")
    with pytest.raises(InputError, match=r"Cannot read .*: No such file"):
        read_public_key(tmp_path / "other")


def test_a_node_whose_settings_are_wrong_says_so_and_is_not_started_again(tmp_path: Path) -> None:
    site = make(tmp_path / "site")
    with (site.kit(0) / "node.toml").open("a") as config:
        config.write("uplink_budget = 3\n")
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    command = [str(site.kit(0) / "start.sh")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: node.toml: There is no key uplink_budget; did you mean uplink-budget?\n"


def test_a_node_that_was_killed_is_started_again(made: Site, programs: Path) -> None:
    kit = made.kit(0)
    add(programs, "refprotofl", "[ -e once ] && touch twice; touch once; kill -KILL $$")
    env = {"PATH": str(programs), "NODE_RETRY": "0.2"}
    node = subprocess.Popen([str(kit / "start.sh")], env=env, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_for((kit / "twice").exists, PATIENCE, lambda: "it was not started again")
        assert node.poll() is None
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait(60)
