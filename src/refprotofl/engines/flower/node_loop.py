"""A node in one process: it asks for messages, answers them with installed code, and keeps data and model in memory."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
from flwr.app import Message

from refprotofl.core import InputError, with_port
from refprotofl.deploy.kits import AUTHORITY, PUBLIC_KEY, load_key
from refprotofl.deploy.log import log
from refprotofl.deploy.node import failure, handle
from refprotofl.deploy.node_config import NodeConfig, read_node_config
from refprotofl.deploy.transport import Envelope, Unreadable
from refprotofl.engines.flower.fleet_client import FleetClient
from refprotofl.engines.flower.internals import check_version, code_in
from refprotofl.engines.flower.records import unwrap

SHORTEST, GROWTH = 0.1, 1.5  # seconds between two looks for work, from a message on
ACTIVE, QUICK = 60.0, 6.0  # seconds after a message, in which the pause is at most look-every / QUICK
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two tries to reach the server
KEPT_OUT, KEPT_OUT_PAUSE = 412, 8.0  # the HTTP status for a key that is online; seconds between two tries then
LONGEST_RETRY = 600.0  # seconds for which an answer is sent again; the server asks once more for a later one
LONGEST_SILENCE = 60.0  # seconds without the server after which a node connects anew: it counts as offline by then

Say = Callable[[str], None]
Made = TypeVar("Made")


@dataclass
class NodeLoop:
    config: NodeConfig
    connect: Callable[[], FleetClient]
    waiting: str  # the sentence for a node whose key is not admitted
    say: Say = log
    pause: Callable[[float], None] = time.sleep
    _last: str = ""
    _apps: dict[int, str] = field(default_factory=dict)  # by run: why its app is refused, "" if it is not

    def run(self) -> None:
        """Serve until interrupted; connect again whenever the connection is lost."""
        pause = FIRST_PAUSE
        while True:
            client = self.connect()
            try:
                client.activate()
                self._report(f"Connected to {self.config.server} as {self.config.name or 'a node without a name'}.")
                pause = FIRST_PAUSE
                self._serve(client)
            except httpx.HTTPStatusError as problem:
                status = problem.response.status_code
                self._report(self._refused(status))
                pause = min(pause, KEPT_OUT_PAUSE) if status == KEPT_OUT else pause
            except httpx.HTTPError as problem:
                self._report(f"Cannot reach {self.config.server} ({_words(problem)}). Trying again.")
            except Exception as problem:  # another server may be listening there
                self._report(f"{self.config.server} sent an invalid answer ({_words(problem)}). Trying again.")
            finally:
                client.close()
            self.pause(pause * random.uniform(0.7, 1.3))
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _refused(self, status: int) -> str:
        if status == 401:
            return self.waiting
        if status == KEPT_OUT:
            return (
                "The server refuses this node: another one with the same key is online, or this one was "
                "disconnected less than a minute ago. Trying again."
            )
        return f"The server refused a request (HTTP {status}). Trying again."

    def _report(self, sentence: str) -> None:
        """Print a sentence, unless it was the last one printed."""
        if sentence != self._last:
            self.say(sentence)
        self._last = sentence

    def _serve(self, client: FleetClient) -> None:
        rest, last = SHORTEST, time.monotonic()
        while True:
            message = self._again(lambda: client.pull(self._again), LONGEST_SILENCE)
            if message is None:
                self.pause(rest)
                longest = self.config.look_every
                longest /= QUICK if time.monotonic() - last < ACTIVE else 1
                rest = min(longest, GROWTH * rest)
                continue
            self._answer(client, message)
            rest, last = SHORTEST, time.monotonic()

    def _answer(self, client: FleetClient, message: Message) -> None:
        envelope = Envelope({})
        try:
            envelope = unwrap(message.content)
            self._check_app(client, message.metadata.run_id)
            given = handle(self.config, message.metadata.message_type.partition(".")[2], envelope)
        except (InputError, Unreadable) as problem:
            given = failure(envelope, problem)
        try:
            taken = client.reply(message, given, self._again)
        except httpx.HTTPStatusError as problem:
            if problem.response.status_code == 401:
                raise
            taken = False
        if not taken:
            self.say("An answer was not accepted: its run may have ended.")

    def _check_app(self, client: FleetClient, run: int) -> None:
        """Raise InputError for a run whose app has code, or is not ours: nothing of an app is ever unpacked here."""
        if run not in self._apps:
            self._apps[run] = code_in(self._again(lambda: client.bundle(run)))
        if self._apps[run]:
            raise InputError(f"The run's app is refused: {self._apps[run]}. A node runs installed code only.")

    def _again(self, do: Callable[[], Made], seconds: float = LONGEST_RETRY) -> Made:
        """Do something again while the link is down: nothing received is lost, and the node stays connected."""
        pause, until, failed = FIRST_PAUSE, time.monotonic() + seconds, False
        while True:
            try:
                made = do()
            except httpx.TransportError as problem:
                if time.monotonic() > until:
                    raise
                failed = True
                self._report(f"The link to {self.config.server} is down ({_words(problem)}). Trying again.")
                self.pause(pause * random.uniform(0.7, 1.3))
                pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            if failed:
                self._report(f"The link to {self.config.server} is back.")
            return made


def _words(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def serve(kit: Path) -> None:
    """Run the node of a kit until it is interrupted."""
    check_version()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = read_node_config(kit)
    address, key = with_port(*config.address), load_key(kit, config.name)
    authority = kit / AUTHORITY
    pem = authority.read_bytes() if authority.exists() else None
    public = (kit / PUBLIC_KEY).absolute()
    name = config.name or "NAME"
    waiting = (
        f"This node's key is not admitted. Send {public} to the operator, who runs: refprotofl deploy admit SITE "
        f"{name} {PUBLIC_KEY}. Until then this node waits."
    )
    NodeLoop(config, lambda: FleetClient(address, pem, key, config.look_every), waiting).run()
