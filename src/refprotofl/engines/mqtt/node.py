"""A node's side: requests are pushed to it and answered one by one, by the code that all transports share."""

import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from refprotofl.core import MachineError
from refprotofl.deploy.node import failure, log_problem
from refprotofl.deploy.transport import Envelope, Unreadable
from refprotofl.engines.mqtt import frames
from refprotofl.engines.mqtt.frames import INLINE, Announced
from refprotofl.engines.mqtt.link import OFFERED, Link, Topics
from refprotofl.engines.mqtt.parts import ContentStore, Incoming, Offered, parts_of

KNOWN = 64  # exchanges whose headers a node keeps as dictionaries
BRIEF = 300.0  # seconds for which a part, and a request for parts, is of use

Answer = Callable[[str, Envelope], Envelope]


@dataclass(eq=False)
class _Task:
    request: frames.Request
    text: bytes  # the header
    until: float | None  # when the answer is of no use
    payload: bytes = b""


class MqttNode:
    """`answer` gets the action and the envelope of each request, in the thread that calls `work`."""

    def __init__(
        self,
        link: Link,
        identity: str,
        answer: Answer,
        contents: ContentStore,
        *,
        topics: Topics | None = None,
        number: Callable[[], int] = lambda: secrets.randbits(63) | 1,
        renew: Callable[[bytes], None] = lambda certificate: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._identity, self._answer, self._contents = link, identity, answer, contents
        self._topics = topics or Topics()
        self._number, self._renew, self._clock = number, renew, clock
        self._process = number()
        self._lock = threading.RLock()
        self._waiting: queue.Queue[_Task | None] = queue.Queue()
        self._fetching: dict[bytes, tuple[Incoming, list[_Task]]] = {}
        self._known: OrderedDict[tuple[bytes, int], bytes] = OrderedDict()  # headers of answered exchanges
        self._offered = Offered(OFFERED)
        subscriptions = [self._topics.down(identity), self._topics.certificate(identity)]
        link.open(subscriptions, self._deliver, self._connected)

    def work(self, seconds: float) -> bool:
        """Answer the next request, if one comes within these seconds."""
        self._ask_again()
        try:
            task = self._waiting.get(timeout=seconds) if seconds else self._waiting.get_nowait()
        except queue.Empty:
            return False
        if task is not None and (task.until is None or self._clock() < task.until):
            self._do(task)
        return True

    def wake(self) -> None:
        """End the wait of `work`."""
        self._waiting.put(None)

    def go_offline(self) -> None:
        self._link.publish(self._topics.presence(self._identity), b"", retain=True)

    def _connected(self, kept: bool) -> None:
        """Say that this node is there; under another number if the broker may have lost what was under way."""
        with self._lock:
            if not kept:
                self._process = self._number()
            data = self._process.to_bytes(8)
            self._link.publish(self._topics.presence(self._identity), data, retain=True)

    def _deliver(self, topic: str, data: bytes, valid: float | None, retained: bool) -> None:
        if topic == self._topics.certificate(self._identity):
            self._renew(data)
            return
        with self._lock:
            try:
                frame = frames.read_frame(data)
                if isinstance(frame, frames.Request):
                    self._take(frame, valid)
                elif isinstance(frame, frames.Part):
                    self._take_part(frame)
                elif isinstance(frame, frames.Want):
                    self._serve(frame)
                elif isinstance(frame, frames.Missing):
                    self._fetching.pop(frame.key, None)
            except Unreadable:
                return  # nothing that could be answered
            except MachineError as problem:  # the disk is full: the server goes on without this node
                log_problem(problem)

    def _take(self, request: frames.Request, valid: float | None) -> None:
        try:
            dictionary = self._known[request.session, request.exchange - request.back] if request.back else b""
            text = frames.decompress(request.header, dictionary)
        except (KeyError, Unreadable):
            self._publish(request.session, frames.NeedsHeader(request.exchange))
            return
        task = _Task(request, text, None if valid is None else self._clock() + valid)
        if isinstance(request.body, bytes):
            task.payload = request.body
            self._waiting.put(task)
        else:
            self._fetch(task, request.body)

    def _fetch(self, task: _Task, what: Announced) -> None:
        kept = self._contents.find(what)
        if kept is not None:
            task.payload = kept
            self._waiting.put(task)
            return
        if what.key in self._fetching:
            incoming, tasks = self._fetching[what.key]
            tasks.append(task)
        else:
            incoming = Incoming(what, self._contents.sink(what), task.request.session, self._clock)
            self._fetching[what.key] = incoming, [task]
        if incoming.complete:
            self._finish(incoming)
        else:
            self._ask(incoming.begin())

    def _ask(self, want: frames.Want | None) -> None:
        if want is not None:
            self._publish(want.session, want)

    def _ask_again(self) -> None:
        with self._lock:
            for incoming, _ in self._fetching.values():
                if incoming.stalled:
                    self._ask(incoming.begin())

    def _take_part(self, part: frames.Part) -> None:
        if part.key not in self._fetching:
            return
        incoming, _ = self._fetching[part.key]
        try:
            self._ask(incoming.take(part))
        except MachineError:
            self._fail(self._fetching.pop(part.key)[1])
            raise
        if incoming.complete:
            self._finish(incoming)

    def _finish(self, incoming: Incoming) -> None:
        tasks = self._fetching.pop(incoming.what.key)[1]
        try:
            payload = incoming.whole()
            self._contents.put(incoming.what, payload)
        except Unreadable:  # it is fetched anew
            self._contents.forget(incoming.what)
            for task in tasks:
                self._fetch(task, incoming.what)
            return
        except MachineError:
            self._fail(tasks)
            raise
        for task in tasks:
            task.payload = payload
            self._waiting.put(task)

    def _fail(self, tasks: list[_Task]) -> None:
        """Answer requests whose payload could not be stored."""
        for task in tasks:
            given = failure(Envelope(frames.read_header(task.text)), MachineError("Its payload could not be stored."))
            self._reply(task, given)

    def _serve(self, want: frames.Want) -> None:
        payload = self._offered.get(want.key)
        if payload is None:
            self._publish(want.session, frames.Missing(want.key))
            return
        for part in parts_of(payload, want):
            self._publish(want.session, part)

    def _do(self, task: _Task) -> None:
        try:
            envelope = Envelope(frames.read_header(task.text), task.payload)
        except Unreadable:
            return
        self._reply(task, self._answer(task.request.action, envelope))

    def _reply(self, task: _Task, given: Envelope) -> None:
        text = frames.header_text(given.header)
        with self._lock:
            body = given.payload if len(given.payload) <= INLINE else self._offered.add(given.payload)
            reply = frames.Reply(task.request.exchange, frames.compress(text, task.text), body)
            self._known[task.request.session, task.request.exchange] = task.text + text
            while len(self._known) > KNOWN:
                self._known.popitem(last=False)
        self._publish(task.request.session, reply, None if task.until is None else task.until - self._clock())

    def _publish(self, session: bytes, frame: frames.Frame, valid: float | None = BRIEF) -> None:
        self._link.publish(self._topics.up(self._identity, session.hex()), frame.encode(), valid)
