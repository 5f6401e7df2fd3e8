"""All uses of Flower's internals, which Flower does not promise to keep.

They change from release to release, so other versions are refused, and tests/flower/test_internals.py has a contract
test for each of them.
"""

import base64
import binascii
import datetime
import io
import logging
import re
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Error, Message, Metadata
from flwr.app.message import make_message
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE, Status, SubStatus
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.supercore import sql_mixin
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_objects
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http.utils import add_headers
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    public_key_to_bytes,
    sign_message,
    verify_signature,
)
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.state.schema.corestate_models import ObjectPushSession, ObjectPushSessionRoot
from flwr.supercore.state.schema.linkstate_models import MessageRes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from sqlalchemy import select

from refprotofl.core import InputError, for_terminal
from refprotofl.deploy.site import Site
from refprotofl.deploy.transport import Unreadable
from refprotofl.engines.flower.bundle import CONTENTS, components
from refprotofl.engines.flower.records import inflate, objects_of

VERSION = "1.41"
SECRET_HEADER = "x-refprotofl-secret"
PATIENCE = 300.0  # seconds that a thread waits for the database
ONE_CONNECTION = {"pool_size": 1, "max_overflow": 0, "pool_timeout": PATIENCE}
FETCH = 10.0  # seconds to fetch the objects of a reply, which are all there
UNREADABLE = 2  # Flower's code for an answer that came to nothing
LONGEST_LINE = 500  # characters of a line in the log, and of a reason
RESTARTED = "The server was restarted while the run was under way."

_HASH = re.compile(r"[0-9a-f]{64}")

create_engine = vars(sql_mixin)["create_engine"]  # SQLAlchemy's


def check_version() -> None:
    """Raise InputError unless the Flower that is installed is one that this module was written for."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        found = "none"
    if found.split(".")[:2] != VERSION.split("."):
        raise InputError(
            f"A deployment needs flwr {VERSION}, and {found} is installed: pip install 'refprotofl[flower]'."
        )


class SecretInterceptor:
    """Adds the operator's secret to each request of one of Flower's HTTP clients."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        add_headers(context.request, {SECRET_HEADER: self._secret})
        return call_next(context)


def queue_for_database() -> None:
    """Have the SuperLink's threads wait in line for one SQLite connection.

    Flower opens up to fifteen, of which SQLite lets one write: the others sleep, try again, and are refused after five
    seconds. A database in memory has one connection anyway.
    """

    def opened(address: str, **given: Any) -> Any:
        return create_engine(address, **(given if "poolclass" in given else {**ONE_CONNECTION, **given}))

    vars(sql_mixin)["create_engine"] = opened


class Lifespan:
    """A replacement for Flower's lifespan, which would start a SuperExec and gRPC servers."""

    def __init__(self, config: object, state_factory: object) -> None:
        del config, state_factory

    def startup(self) -> None: ...

    def shutdown(self) -> None: ...


def create_app(site: Site) -> Any:
    """Return Flower's SuperLink as an ASGI app, without interactive API docs and with our guards."""
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app

    check_version()
    queue_for_database()
    guard_fleet(site.keys.max_message)
    guard_replies()
    guard_log()
    guard_runs()
    config = SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host="",
        port=0,
        insecure=site.keys.insecure,
        certificates=None,
        superexec_auth_secret=None,
        authn_plugin=load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=not site.keys.insecure,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        database=str((site.server / "state.db").absolute()),
        isolation="process",
        runtime_dependency_install=False,
    )
    lifespan: Any = Lifespan
    app = create_app(config, lifespan)
    documented = {app.docs_url, app.openapi_url, app.swagger_ui_oauth2_redirect_url}
    app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") not in documented]
    return app


def routes_of(app: Any) -> list[tuple[str, str]]:
    """Return method and path of every route that the SuperLink has."""
    from fastapi.routing import iter_route_contexts

    found = []
    for context in iter_route_contexts(app.routes):
        route: Any = context.route
        found += [(method, str(route.path)) for method in getattr(route, "methods", None) or ()]
    return sorted(set(found))


def guard_fleet(most: int) -> None:
    """Have the Fleet API check what Flower does not: that a node answers in its own name, within its size.

    Flower authenticates the node of a request, but not the sender named in the message: a node could answer for
    another, or send it requests as if it were the server. And it bounds neither the parts of a message nor their sum. A
    node has one answer under way at a time; only parts of that are taken.
    """
    from flwr.superlink.servicer.fleet import fleet_handlers

    handlers, sessions = vars(fleet_handlers), dict[int, tuple[str, int]]()  # by node: its session, bytes so far
    push_messages, push_object = handlers["push_messages"], handlers["push_object"]
    one_by_one = threading.Lock()

    def pushed(request: Any, state: Any) -> Any:
        _check_reply(request, most)
        answer = push_messages(request=request, state=state)
        sessions[request.node.node_id] = answer.session_id, 0
        return answer

    def stored(request: Any, state: Any) -> Any:
        with one_by_one:  # a node sends its parts side by side
            session, size = sessions.get(request.node.node_id, ("", 0))
            size += len(request.object_content)
            if not session or request.session_id != session:
                raise refused(403)
            if size > most:
                raise refused(413)
            sessions[request.node.node_id] = session, size
        return push_object(request=request, state=state)

    handlers["push_messages"], handlers["push_object"] = pushed, stored


def _check_reply(request: Any, most: int) -> None:
    """Raise unless a request holds one answer of its own node, the objects of which are few."""
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        raise refused(400)
    metadata, tree = request.messages_list[0].metadata, request.message_object_trees[0]
    if metadata.src_node_id != request.node.node_id or not _HASH.fullmatch(metadata.reply_to_message_id):
        raise refused(403)
    if not _HASH.fullmatch(metadata.message_id) or tree.object_id != metadata.message_id:
        raise refused(403)
    for number, one in enumerate(iterate_object_tree(tree)):
        if number >= objects_of(most) or not _HASH.fullmatch(one.object_id):
            raise refused(413)


def guard_replies() -> None:
    """Have the Runtime API give out whole replies only.

    Flower gives out a reply when it is announced, and the run's process would wait for its objects, and with it all
    other clients: as long as its sender, or its sender's slow link, likes. What is not whole is not there yet.
    """
    from flwr.superlink.servicer.runtime import runtime_handlers

    pull_messages = vars(runtime_handlers)["pull_messages"]

    def pulled(request: Any, state: Any, task: Any) -> Any:
        waiting = _incomplete(state, list(request.message_ids))
        wanted = [one for one in request.message_ids if one not in waiting]
        return pull_messages(PullAppMessagesRequest(message_ids=wanted), state, task)

    vars(runtime_handlers)["pull_messages"] = pulled


def _incomplete(state: Any, requests: list[str]) -> set[str]:
    """Return those requests whose reply is announced and whose objects are not all there."""
    statement = (
        select(MessageRes.reply_to_message_id)
        .join(ObjectPushSessionRoot, ObjectPushSessionRoot.root_object_id == MessageRes.message_id)
        .join(ObjectPushSession, ObjectPushSession.session_id == ObjectPushSessionRoot.session_id)
        .where(MessageRes.reply_to_message_id.in_(requests), ObjectPushSession.pending_count > 0)
    )
    with state.session() as session:
        return set(session.scalars(statement).all())


def refused(status: int) -> Exception:
    """Return the exception that makes Flower answer with a status code and no detail."""
    from fastapi import HTTPException

    problem: Exception = HTTPException(status)
    return problem


def guard_log() -> None:
    """Have Flower write short lines without control characters to its log: they hold what nodes sent."""

    def shorten(record: logging.LogRecord) -> bool:
        record.msg, record.args = for_terminal(record.getMessage()[:LONGEST_LINE]), ()
        record.exc_info = record.exc_text = None
        return True

    logger = logging.getLogger("flwr")
    logger.setLevel(logging.WARNING)
    logger.addFilter(shorten)
    for handler in logger.handlers:  # records of loggers below it pass these alone
        handler.addFilter(shorten)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


def guard_runs() -> None:
    """Have the Control API start no app but ours, which has no code."""
    from flwr.superlink.servicer.control import control_handlers

    start_run = vars(control_handlers)["start_run"]

    def started(request: Any, *given: Any, **more: Any) -> Any:
        if request.app_spec or code_in(request.fab.content):
            raise refused(403)
        return start_run(request, *given, **more)

    vars(control_handlers)["start_run"] = started


def code_in(bundle: bytes) -> str:
    """Return why a Flower app bundle is not ours; "" if it is ours and has no code. Nothing of it is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            names = archive.namelist()
            if foreign := [name for name in names if name not in CONTENTS]:
                return f"it contains {foreign[0]!r}"
            if len(names) != len(set(names)) or archive.getinfo("pyproject.toml").file_size > 100_000:
                return "its pyproject.toml is not one of ours"
            found = tomllib.loads(archive.read("pyproject.toml").decode())
        named = found["tool"]["flwr"]["app"]["components"]
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, OSError, RuntimeError, NotImplementedError):
        return "it is not a Flower app"
    return "" if named == components() else "its components are not those of refprotofl"


def verified_key(headers: Mapping[str, str]) -> bytes | None:
    """Return the public key that signed a Fleet request's time stamp just now; None if none did."""
    try:
        key = base64.b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = base64.b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        stamp = headers[TIMESTAMP_HEADER]
        age = time.time() - datetime.datetime.fromisoformat(stamp).timestamp()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        return key if verify_signature(bytes_to_public_key(key), stamp.encode("ascii"), signature) else None
    except (KeyError, ValueError, TypeError, UnicodeError, binascii.Error, OverflowError, UnsupportedAlgorithm):
        return None


def signed_headers(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Return the headers that authenticate a node."""
    stamp = datetime.datetime.now(datetime.UTC).isoformat()
    signature = sign_message(key, stamp.encode("ascii"))
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        TIMESTAMP_HEADER: stamp,
        FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }


def is_registered(app: Any, key: bytes) -> bool:
    return app.state.linkstate_factory.state().get_node_id_by_public_key(key) is not None


def acquire_run(app: Any) -> tuple[int, int, str] | None:
    """Claim the next run that waits: its id, the id of its task, and the token by which its process is known."""
    from flwr.superlink.servicer.runtime import runtime_handlers

    request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
    found = runtime_handlers.acquire_task(request, app.state.linkstate_factory.state())
    return (found.task.run_id, found.task.task_id, found.token) if found.token else None


def unfinished(app: Any, tasks: Sequence[int] | None = None) -> set[int]:
    """Return the ids of tasks that have not ended; of these, or of all that were begun."""
    state = app.state.linkstate_factory.state()
    statuses = [Status.STARTING, Status.RUNNING]
    return {task.task_id for task in state.get_tasks(task_ids=tasks, statuses=statuses)}


def fail_task(app: Any, task: int, reason: str) -> None:
    app.state.linkstate_factory.state().finish_task(task, SubStatus.FAILED, reason)


class OperatorGrid(HttpGrid):
    """Flower's Grid for a run's process, through the operator's door."""

    def __init__(self, site: Site, token: str) -> None:
        authority = site.authority.read_bytes() if site.authority else None
        super().__init__(site.operator_address, site.keys.insecure, authority, token=token)
        self._secret = site.secret()
        self._task = 0

    def _connect(self) -> None:
        self._client = RuntimeHttpClient.from_server_address(
            server_address=self._addr,
            insecure=self._insecure,
            root_certificates=self._cert,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-serverapp"),
                RuntimeTokenHttpInterceptor(token=self._token),
                SecretInterceptor(self._secret),
            ],
            retry_invoker=self._retry_invoker,
        )

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there. One that cannot be read fails its sender only.

        The SuperLink says which request a reply belongs to; the reply itself is not trusted.
        """
        found = self._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        trees = zip(found.messages_list, found.message_object_trees, strict=True)
        return [self._fetched(proto.metadata, tree) for proto, tree in trees]

    def _fetched(self, metadata: Any, tree: ObjectTree) -> Message:
        run, identity = self.run.run_id, metadata.message_id
        try:
            contents = pull_objects(
                [one.object_id for one in iterate_object_tree(tree)],
                make_pull_object_fn_protobuf(self._runtime_client.PullObject, self.node, run),
                max_time=FETCH,
                max_tries_per_object=3,
            )
            received = ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=identity)
            self._runtime_client.ConfirmMessageReceived(received)
            message = inflate(identity, contents)
        except (ObjectPullError, Unreadable) as problem:
            message = self._failed(str(problem))
        message.metadata.__dict__["_message_id"] = identity
        message.metadata.__dict__["_reply_to_message_id"] = metadata.reply_to_message_id
        return message

    def _failed(self, reason: str) -> Message:
        metadata = Metadata(
            run_id=self.run.run_id,
            message_id="",
            src_node_id=self.node.node_id,
            dst_node_id=self.node.node_id,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=0,
            message_type="system",
        )
        return make_message(metadata=metadata, error=Error(code=UNREADABLE, reason=reason[:LONGEST_LINE]))

    def begin(self) -> Run:
        """Register the run's process with the SuperLink, start its heartbeat, and return the run."""
        from flwr.common.serde import run_from_proto

        self._heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(self._runtime_client))
        self._heartbeat.start()
        found = self._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = found.task_id, found.run.run_id
        TaskIdentity.node_id = found.context.node_id
        run: Run = run_from_proto(found.run)
        self.set_run(run)
        return run

    def finish(self, completed: bool, details: str = "") -> None:
        status = SubStatus.COMPLETED if completed else SubStatus.FAILED
        self._retry_invoker.max_tries = 3
        self._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        self._heartbeat.stop()
        self.close()
