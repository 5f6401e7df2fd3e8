"""The server of a site over MQTT: starts the broker and the processes of runs, and keeps track of the nodes.

python -m refprotofl.engines.mqtt.server SITE ADDRESS

Commands and this process share files below the site's server folder, which only its owner can read.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from refprotofl.core import RefProtoFLError
from refprotofl.deploy.finals import FinalPart, HandOut, final_path, newest_final, read_handed, write_handed
from refprotofl.deploy.log import log
from refprotofl.deploy.registry import place_in
from refprotofl.deploy.site import Site, read_site
from refprotofl.engines.mqtt import runs
from refprotofl.engines.mqtt.broker import Broker
from refprotofl.engines.mqtt.client import Identity, PahoLink
from refprotofl.engines.mqtt.identities import admitted_nodes, certificates_changed, renewed_certificates, revoked_nodes
from refprotofl.engines.mqtt.link import Topics
from refprotofl.engines.mqtt.transport import MqttTransport
from refprotofl.records import write_whole

LOOK = 0.2  # seconds between two looks for new runs
ENDING = 20.0  # seconds that a run's process has to end
RESTARTED = "The server was restarted while the run was under way."


def main() -> None:
    site, address = read_site(Path(sys.argv[1])), sys.argv[2]
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    server = Server(site, address)
    try:
        server.run(ended)
    finally:
        server.stop()


def server_link(site: Site, name: str, kept: int = 0) -> PahoLink:
    """Return a connection of the server's, or of a run's, to the broker; `kept`: seconds its session outlives it."""
    identity = Identity(site.server / "ca.crt", site.server / "client.crt", site.server / "client.key")
    return PahoLink(site.broker_address, identity, name, kept=kept, say=log)


class Server:
    def __init__(self, site: Site, address: str) -> None:
        self._site = site
        self._topics = Topics()
        self._broker = None if site.keys.broker else Broker(site, address)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by run
        self._online: dict[str, float] = {}  # by node: since when
        self._seen: dict[str, float] = {}  # by node: when it was seen last
        self._lock = threading.Lock()
        self._changed = True
        self._published: dict[str, bytes] = {}
        self._issued = 0  # when the folder of certificates was last changed, as far as they are published
        self._cut = revoked_nodes(site)
        self._transport: MqttTransport | None = None  # for what nodes get without a run
        self._hand_out: tuple[str, HandOut] | None = None

    def run(self, ended: threading.Event) -> None:
        if self._broker is not None:
            self._broker.start()
        for run in runs.unfinished(self._site):
            runs.finish(self._site, run, "failed", RESTARTED)
        self._seen = runs.read_nodes(self._site)
        self._link = server_link(self._site, "server")
        self._link.open([self._topics.presence("+")], self._deliver, self._connected)
        write_whole(self._site.ready, str(os.getpid()).encode())
        while not ended.wait(LOOK):
            try:
                self._look()
            except RefProtoFLError as problem:  # a full disk must not end all runs to come
                log(str(problem))

    def stop(self) -> None:
        self._site.ready.unlink(missing_ok=True)
        for process in self._processes.values():
            _stop(process)
        if self._broker is not None:
            self._broker.stop()

    def _connected(self, kept: bool) -> None:
        with self._lock:
            self._online.clear()  # the broker says again who is there
            self._published.clear()
            self._issued = 0
            self._changed = True

    def _deliver(self, topic: str, data: bytes, valid: float | None, retained: bool) -> None:
        node, now = self._topics.node_of(topic), time.time()
        with self._lock:
            if data:
                self._online.setdefault(node, now)
            else:
                self._online.pop(node, None)
            self._seen[node] = now
            self._changed = True

    def _look(self) -> None:
        if self._broker is not None:
            self._broker.check()
        self._start_runs()
        self._look_after_runs()
        self._cut_revoked()
        self._publish_certificates()
        self._hand_out_final()
        with self._lock:
            changed, self._changed = self._changed, False
            online, seen = dict(self._online), dict(self._seen)
        if changed:
            runs.write_nodes(self._site, online, seen)

    def _start_runs(self) -> None:
        for run in runs.pending(self._site):
            command = [sys.executable, "-m", "refprotofl.engines.mqtt.run_process"]
            command += [str(self._site.folder.absolute()), str(run)]
            with (self._site.runs / f"{run}.log").open("ab") as log:
                self._processes[run] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            runs.update(self._site, run, status="running")

    def _look_after_runs(self) -> None:
        for run, process in list(self._processes.items()):
            if runs.stop_file(self._site, run).exists() and process.poll() is None:
                runs.finish(self._site, run, "stopped", "")
                _stop(process)
            code = process.poll()
            if code is not None:
                del self._processes[run]
                reason = f"Its process ended (exit code {code}): killed, or out of memory."
                runs.finish(self._site, run, "failed", reason)

    def _cut_revoked(self) -> None:
        """End the connections of nodes that were revoked: a broker may keep them after a change of its list."""
        for node in revoked_nodes(self._site) - self._cut:
            self._cut.add(node)
            cut_off(self._site, node)

    def _publish_certificates(self) -> None:
        """Publish each node's new certificate where it finds it when it comes online."""
        changed = certificates_changed(self._site)
        if not self._link.connected or changed == self._issued:
            return
        for node, certificate in renewed_certificates(self._site).items():
            if self._published.get(node) != certificate:
                self._published[node] = certificate
                self._link.publish(self._topics.certificate(node), certificate, retain=True)
        self._issued = changed

    def _hand_out_final(self) -> None:
        """Hand the newest final part to nodes that were offline at the end of its run."""
        run = newest_final(self._site)
        if run is None or int(run) in self._processes:
            return
        if self._hand_out is None or self._hand_out[0] != run:
            if self._transport is None:
                link, most = server_link(self._site, "final"), self._site.keys.max_message
                self._transport = MqttTransport(link, lambda: admitted_nodes(self._site), most)
            place = place_in(self._site)
            keep = partial(write_handed, self._site, run)
            final, handed = FinalPart.read(final_path(self._site, run)), read_handed(self._site, run)
            self._hand_out = run, HandOut(self._transport, final, lambda node: place(node, node.name), handed, keep)
        self._hand_out[1].step()


def cut_off(site: Site, node: str) -> None:
    """End a node's connection, by a connection under its name, which replaces it, and drop what waits for it."""
    link = server_link(site, node)
    link.open([], lambda *given: None, lambda kept: None)
    until = time.monotonic() + 5.0
    while not link.connected and time.monotonic() < until:
        time.sleep(0.02)
    link.close()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for ask in (process.terminate, process.kill):
        with suppress(ProcessLookupError):
            ask()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
            return


if __name__ == "__main__":
    main()
