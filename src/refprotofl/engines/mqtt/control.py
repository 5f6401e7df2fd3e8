"""The operator's side of a site over MQTT: the commands, which share files with the server."""

from collections.abc import Sequence

from refprotofl.core import DataError, InputError, MachineError
from refprotofl.deploy.operator import NodeStatus, RunStatus
from refprotofl.deploy.server_process import check_certificates, process_of
from refprotofl.deploy.site import Site
from refprotofl.engines.mqtt import identities, runs


class MqttOperator:
    def __init__(self, site: Site) -> None:
        self._site = site

    def start(self, config: dict[str, str]) -> int:
        self._require_server()
        return runs.submit(self._site, config)

    def stop(self, run: int) -> bool:
        self._require_server()
        if self.run(run).finished:
            return False
        runs.stop_file(self._site, run).touch()
        return True

    def run(self, run: int) -> RunStatus:
        found = runs.read_run(self._site, run)
        status, reason = found["status"], str(found["reason"])
        if not status.startswith("finished") and process_of(self._site) is None:
            return RunStatus(run, "finished:failed", "The server is not running.", MachineError.exit_code)
        return RunStatus(run, status, reason, int(found["exit_code"]))

    def runs(self) -> list[RunStatus]:
        found = []
        for run in runs.all_runs(self._site):
            try:
                found.append(self.run(run))
            except DataError as problem:
                found.append(RunStatus(run, "finished:failed", str(problem), DataError.exit_code))
        return found

    def nodes(self) -> list[NodeStatus]:
        online, seen = runs.read_nodes(self._site, "online"), runs.read_nodes(self._site)
        if process_of(self._site) is None:
            online = {}

        def status(node: str) -> str:
            return "online" if node in online else "offline" if node in seen else "registered"

        found = identities.registered(self._site)
        return [NodeStatus(number_of(key), name, key, status(node), seen.get(node, 0.0)) for node, name, key in found]

    def register(self, name: str, public_key: bytes) -> None:
        identities.issue(self._site, name, public_key)

    def unregister(self, node: int) -> None:
        for identity, _, key in list(identities.registered(self._site)):
            if number_of(key) == node:
                identities.revoke(self._site, identity)

    def certificates(self) -> dict[str, float]:
        return identities.days_left(self._site)

    def renew(self, names: Sequence[str]) -> list[str]:
        with self._site.locked("admissions"):
            return identities.renew(self._site, names)

    def _require_server(self) -> None:
        folder = self._site.folder
        check_certificates(self._site)
        if process_of(self._site) is None:
            raise InputError(f"The server of {folder} is not running: refprotofl deploy start {folder}")


def number_of(key: str) -> int:
    """Return a node's number in listings, from the SHA-256 of its key."""
    return int(key[:12], 16)
