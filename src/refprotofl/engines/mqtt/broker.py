"""mosquitto as the broker of a site: its configuration, its files and its process."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from refprotofl.core import InputError, MachineError
from refprotofl.deploy.log import is_json, log
from refprotofl.deploy.site import BROKER_USER, Site
from refprotofl.engines.mqtt.client import IN_FLIGHT, ROOM
from refprotofl.engines.mqtt.link import PACKET, PREFIX
from refprotofl.records import write_whole

USER = "mosquitto"  # whom mosquitto becomes when root starts it
PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")  # where it is, if not on the PATH
QUEUED = 4000  # messages that wait for a client that is slow or offline
ENDING = 20.0  # seconds that it has to end
FILES = ("ca.crt", "server.crt", "server.key", "revoked.pem")


def find_mosquitto() -> str | None:
    """Return mosquitto's program, which Debian does not put on the PATH of all users."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=os.pathsep.join(PLACES))


def require_mosquitto() -> str:
    found = find_mosquitto()
    if found is None:
        raise InputError(
            "The broker mosquitto is not installed: apt install mosquitto (then systemctl disable --now mosquitto, as "
            "this one is started by deploy start), or name a broker that you run with deploy init --broker."
        )
    return found


def configuration(site: Site, folder: Path, address: str, user: str | None) -> str:
    """Return mosquitto.conf: nodes on one listener, the server and the processes of its runs on another."""
    keys = site.keys
    lines = [f"user {user}"] if user else []
    lines += [
        "allow_anonymous false",
        f"acl_file {folder / 'acl'}",
        "persistence true",
        f"persistence_location {folder}/",
        "autosave_interval 60",
        "persistent_client_expiration 14d",
        f"max_packet_size {PACKET + ROOM}",
        f"max_inflight_messages {IN_FLIGHT}",
        f"max_queued_messages {QUEUED}",
        "set_tcp_nodelay true",
        "log_dest stdout",
        *(f"log_type {one}" for one in ("error", "warning", "notice")),
    ]
    lines += _listener(folder, keys.port, address, keys.max_connections)
    lines += ["use_username_as_clientid true"]  # so that a node cannot end another one's connection
    lines += _listener(folder, keys.operator_port, "127.0.0.1", 256)
    return "\n".join(lines) + "\n"


def _listener(folder: Path, port: int, address: str, most: int) -> list[str]:
    return [
        f"listener {port} {address}",
        f"max_connections {most}",
        f"cafile {folder / 'ca.crt'}",
        f"certfile {folder / 'server.crt'}",
        f"keyfile {folder / 'server.key'}",
        f"crlfile {folder / 'revoked.pem'}",
        "require_certificate true",
        "use_identity_as_username true",
        "tls_version tlsv1.3",
    ]


ACL = f"""user {BROKER_USER}
topic readwrite {PREFIX}/#
pattern write {PREFIX}/s/%u
pattern write {PREFIX}/u/%u/+
pattern read {PREFIX}/d/%u
pattern read {PREFIX}/c/%u
"""


class Broker:
    """mosquitto's process, with copies of its files that its user can read and no one else."""

    def __init__(self, site: Site, address: str) -> None:
        self._site, self._address = site, address
        self._program = require_mosquitto()
        self._user = USER if os.geteuid() == 0 else None
        self._folder = self._make_folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._used: dict[str, bytes] = {}  # its files as it reads them

    def _make_folder(self) -> Path:
        """Return the folder of its files; below one that its user can enter if root starts it."""
        if self._user is None:
            return self._site.home.absolute()
        try:
            pwd.getpwnam(self._user)
        except KeyError:
            raise InputError(
                f"There is no user {USER} that mosquitto could become: run the server as another user than root."
            ) from None
        folder = Path(tempfile.mkdtemp(prefix="refprotofl-broker-", dir="/run" if os.access("/run", os.W_OK) else None))
        shutil.chown(folder, self._user, self._user)
        return folder

    def start(self) -> None:
        self._copy_changed()
        self._write("acl", ACL.encode())
        self._write("mosquitto.conf", configuration(self._site, self._folder, self._address, self._user).encode())
        command = [self._program, "-c", str(self._folder / "mosquitto.conf")]
        if is_json():  # its own lines are text
            with (self._site.server / "broker.log").open("ab") as lines:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines)
        else:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        write_whole(self._site.broker_process, json.dumps([self._process.pid, command]).encode())

    def check(self) -> None:
        """Start it again if it has ended; make it read its certificates and those revoked again if one has changed."""
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            log(f"The broker ended (exit code {code}). It is started again.", "broker-ended", exit_code=code)
            self._used.clear()
            self.start()
            return
        if self._copy_changed():
            self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING)
            self._process.kill()
            self._process.wait()
        if self._user is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copy_changed(self) -> bool:
        """Copy the files that have changed since they were copied; return whether there were any."""
        found = {name: (self._site.server / name).read_bytes() for name in FILES}
        changed = [name for name, data in found.items() if self._used.get(name) != data]
        for name in changed:
            self._write(name, found[name])
        self._used = found
        return bool(changed)

    def _write(self, name: str, data: bytes) -> None:
        path, part = self._folder / name, self._folder / f".{name}.part"
        try:
            part.unlink(missing_ok=True)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            if self._user is not None:
                shutil.chown(part, self._user, self._user)
            part.replace(path)
        except OSError as problem:
            raise MachineError(f"Cannot write {path}: {problem.strerror}.") from None
