"""Contract tests: each thing that engines/flower/internals.py relies on in Flower is as it expects."""

import inspect
import io
import logging
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore import sql_mixin
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.state.schema.corestate_models import ObjectPushSession, ObjectPushSessionRoot
from flwr.supercore.state.schema.linkstate_models import MessageRes
from flwr.supercore.utils import uint64_to_int64
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.control import control_handlers
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from sqlalchemy import insert, update
from sqlalchemy.pool import QueuePool

from refprotofl.core.errors import InputError
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.engines.flower import internals
from refprotofl.engines.flower.bundle import build_bundle
from refprotofl.engines.flower.records import objects_of

# Flower's packages export an APIRouter under the name of the module that makes it.
control_router, fleet_router = (import_module(f"flwr.superlink.routers.{name}.router") for name in ("control", "fleet"))
# Flower's own migrations of its database.
pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")

PATCHED = ((sql_mixin, "create_engine"), (fleet_handlers, "push_messages"), (fleet_handlers, "push_object"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return create_site(tmp_path / "site", SiteKeys(host="127.0.0.1", port=1, operator_port=2, nodes=1))


@pytest.fixture
def app(site: Site) -> Iterator[Any]:
    """The SuperLink's app; what it changes in Flower is put back."""
    places = (*PATCHED, (control_handlers, "start_run"), (runtime_handlers, "pull_messages"))
    before = [(module, name, vars(module)[name]) for module, name in places]
    logger = logging.getLogger("flwr")
    filters = [(one, list(one.filters)) for one in (logger, *logger.handlers)]
    yield internals.create_app(site)
    for module, name, function in before:
        vars(module)[name] = function
    for one, kept in filters:
        one.filters = kept


def test_another_flower_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    internals.check_version()
    assert version("flwr").startswith(f"{internals.VERSION}.")
    monkeypatch.setattr(internals, "version", lambda name: "1.42.0")
    with pytest.raises(InputError, match=r"needs flwr 1\.41, and 1\.42\.0 is installed: pip install"):
        internals.check_version()


def test_the_app_has_no_api_docs(app: Any) -> None:
    paths = {path for _, path in internals.routes_of(app)}
    assert not paths & {"/docs", "/openapi.json", "/redoc", "/docs/oauth2-redirect"}
    assert "/v1/fleet/activate-node" in paths


def test_the_database_has_one_connection(app: Any) -> None:
    pool = app.state.linkstate_factory.state()._engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.size() == 1
    assert pool._max_overflow == 0


@pytest.mark.parametrize("name", ["push_messages", "push_object"])
def test_the_fleet_api_calls_its_handlers_as_we_replace_them(name: str) -> None:
    assert list(inspect.signature(vars(fleet_handlers)[name]).parameters) == ["request", "state"]
    assert f"fleet_handlers.{name}(request=request, state=state)" in inspect.getsource(fleet_router)


def test_the_control_api_starts_runs_through_the_handler_that_we_replace() -> None:
    assert "control_handlers.start_run(" in inspect.getsource(control_router)


def reply(node: int = 7, **changed: Any) -> PushMessagesRequest:
    """An answer of node 7 to a request, as a node announces it."""
    request = PushMessagesRequest()
    request.node.node_id = 7
    metadata = request.messages_list.add().metadata
    metadata.src_node_id, metadata.reply_to_message_id, metadata.message_id = node, "a" * 64, "b" * 64
    for name, value in changed.items():
        if name != "root":
            setattr(metadata, name, value)
    request.message_object_trees.add(object_id=changed.get("root", "b" * 64))
    return request


@pytest.mark.parametrize(
    "request_",
    [
        reply(node=8),
        reply(node=1),
        reply(reply_to_message_id=""),
        reply(reply_to_message_id="x" * 1_000_000),
        reply(message_id="c" * 64),
        reply(root="c" * 64),
        PushMessagesRequest(),
    ],
)
def test_an_answer_that_is_not_the_nodes_own_is_refused(app: Any, request_: PushMessagesRequest) -> None:
    with pytest.raises(Exception, match=r"40[03]"):
        vars(fleet_handlers)["push_messages"](request=request_, state=None)


def test_a_message_of_too_many_parts_is_refused(app: Any) -> None:
    request = reply()
    for number in range(objects_of(64_000_000)):
        request.message_object_trees[0].children.add(object_id=f"{number:064x}")
    with pytest.raises(Exception, match="413"):
        vars(fleet_handlers)["push_messages"](request=request, state=None)


@pytest.mark.parametrize("session", ["", "s", "x" * 1_000_000])
def test_objects_are_taken_for_the_nodes_own_answer_alone(app: Any, session: str) -> None:
    request = PushObjectRequest(session_id=session, object_id="a" * 64, object_content=b"x")
    with pytest.raises(Exception, match="403"):
        vars(fleet_handlers)["push_object"](request=request, state=None)


def test_the_runtime_api_pulls_messages_through_the_handler_that_we_replace(app: Any) -> None:
    assert app.state.runtime_handlers is runtime_handlers
    assert list(inspect.signature(vars(runtime_handlers)["pull_messages"]).parameters) == ["request", "state", "task"]


def test_a_reply_is_incomplete_until_all_its_objects_are_there(app: Any) -> None:
    state, run = app.state.linkstate_factory.state(), uint64_to_int64(submitted(app))
    with state.session() as session:
        session.execute(insert(ObjectPushSession).values(session_id="s", run_id=run, expires_at=now(), pending_count=2))
        session.execute(insert(ObjectPushSessionRoot).values(session_id="s", root_object_id="b" * 64))
        columns = {column.name: "" for column in MessageRes.__table__.columns}
        values = {
            "message_id": "b" * 64,
            "reply_to_message_id": "a" * 64,
            "run_id": run,
            "src_node_id": 7,
            "dst_node_id": 1,
        }
        rest = {"created_at": 0.0, "ttl": 1.0, "content": b"", "error": b""}
        known = {name: value for name, value in {**columns, **values, **rest}.items() if name in columns}
        session.execute(insert(MessageRes).values(known))
    assert internals._incomplete(state, ["a" * 64, "c" * 64]) == {"a" * 64}
    with state.session() as session:
        session.execute(update(ObjectPushSession).values(pending_count=0))
    assert internals._incomplete(state, ["a" * 64]) == set()


def test_what_nodes_send_is_short_and_harmless_in_the_log(app: Any, capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("flwr", logging.ERROR, "", 1, "%s", ("\x1b]0;owned\x07" + "x" * 10_000,), None)
    logging.getLogger("flwr").filter(record)
    assert "\x1b" not in record.getMessage()
    assert len(record.getMessage()) < 2 * internals.LONGEST_LINE


def submitted(app: Any) -> int:
    """The id of a run as `deploy run` submits it."""
    state = app.state.linkstate_factory.state()
    account = AccountInfo(flwr_aid="<id:none>", account_name="<name:none>")
    account = app.state.account_access_dep.authn_plugin.validate_tokens_in_metadata([])[1] or account
    request = StartRunRequest(fab=Fab(hash_str="", content=build_bundle()))
    return int(vars(control_handlers)["start_run"](request, account, state, "grpc-rere").run_id)


def test_runs_are_acquired_once_and_fail_with_a_reason(app: Any) -> None:
    assert internals.acquire_run(app) is None
    state, run = app.state.linkstate_factory.state(), submitted(app)
    found = internals.acquire_run(app)
    assert found is not None
    assert found[0] == run
    assert found[2]
    assert internals.acquire_run(app) is None
    assert internals.unfinished(app) == {found[1]}
    internals.fail_task(app, found[1], "the reason")
    assert internals.unfinished(app, [found[1]]) == set()
    ended = state.get_run_info(run_ids=[run])[0].status
    assert (ended.status, ended.sub_status, ended.details) == ("finished", "failed", "the reason")


def test_the_grid_has_the_parts_that_ours_replaces() -> None:
    grid = HttpGrid("127.0.0.1:1", True, None, token="t")
    for name in ("_addr", "_insecure", "_cert", "_token", "_client", "_retry_invoker"):
        assert hasattr(grid, name)
    assert {"_connect", "_runtime_client", "set_run", "close"} <= set(dir(HttpGrid))


def sign(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """The headers that Flower's own SuperNode sends."""
    request = httpx.Request("POST", "https://127.0.0.1/")

    def send(context: ProtobufRequestContext) -> httpx.Response:
        return httpx.Response(200, request=context.request)

    context = ProtobufRequestContext("", StartRunRequest(), request)
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, send)
    return dict(request.headers)


def test_the_signature_of_flowers_node_is_understood() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    assert internals.verified_key(sign(key)) == public_key_to_bytes(key.public_key())
    assert internals.verified_key(internals.signed_headers(key)) == public_key_to_bytes(key.public_key())
    assert set(internals.signed_headers(key)) <= set(sign(key))


def test_other_signatures_are_not_taken() -> None:
    key, other = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    good, foreign = internals.signed_headers(key), internals.signed_headers(other)
    names = list(good)
    for name in names:
        assert internals.verified_key({**good, name: foreign[name]}) is None
        assert internals.verified_key({one: value for one, value in good.items() if one != name}) is None
        for wrong in ("", "é", "AAAA", "2020-01-01T00:00:00+00:00", "9999-99-99", "x" * 100_000):
            assert internals.verified_key({**good, name: wrong}) is None


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return packed.getvalue()


def test_our_bundle_has_no_code_and_is_the_same_every_time() -> None:
    assert internals.code_in(build_bundle()) == ""
    assert build_bundle() == build_bundle()
    assert len(build_bundle()) < 2000


def test_bundles_with_code_or_other_components_are_recognised() -> None:
    with zipfile.ZipFile(io.BytesIO(build_bundle())) as ours:
        project = ours.read("pyproject.toml")
    for bundle, why in (
        (b"", "not a Flower app"),
        (b"PK\x03\x04" + bytes(100), "not a Flower app"),
        (archive(**{"pyproject.toml": project, "evil.py": b""}), "contains 'evil.py'"),
        (archive(**{"pyproject.toml": project, "refprotofl/__init__.py": b""}), "contains 'refprotofl/__init__.py'"),
        (archive(**{"README.md": b""}), "not a Flower app"),
        (archive(**{"pyproject.toml": project.replace(b"refprotofl.engines", b"evil.engines")}), "components"),
        (archive(**{"pyproject.toml": b"[tool]"}), "not a Flower app"),
        (archive(**{"pyproject.toml": b"#" * 10_000_000 + project}), "not one of ours"),
    ):
        assert why in internals.code_in(bundle), why
