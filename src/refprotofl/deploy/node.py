"""A node: what it answers when it is greeted, told of a run, and asked."""

import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.core.errors import DataError, InputError, MachineError, RefProtoFLError
from refprotofl.deploy.headers import PROTOCOL, Answered, Route
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope, Unreadable
from refprotofl.engines.engine import Code
from refprotofl.experiment import Experiment

if TYPE_CHECKING:
    from refprotofl.deploy.node_store import NodeStore, Sent
    from refprotofl.engines.local.host import ClientHost

NEEDS_RUN = "needs-run"  # the answer of a node that has not been told of the run, or has lost it
NEEDS_REQUEST = "needs-request"  # of one that is reminded of a request that it has not answered


def greet(config: NodeConfig) -> Envelope:
    """Answer a greeting: the version of the protocol and the node's name; nothing of its data."""
    return Envelope({"protocol": PROTOCOL, "name": config.name})


def take_run(config: NodeConfig, envelope: Envelope) -> Envelope:
    """Keeps the experiment, and the test set if one is sent along; refused if the node cannot or will not take part."""
    from refprotofl.deploy.node_store import NodeStore, remove_old

    try:
        run, client = str(envelope.header["run"]), int(envelope.header["client"])
        if config.client not in (None, client):
            raise InputError(
                f"The server made this node client {client}, but client = {config.client} in node.toml: remove it, or "
                "ask the operator to admit the node as that client."
            )
        experiment, store = Experiment.parse(envelope.header["experiment"]), NodeStore(config.folder, run)
        # What does not fit shows before anything is asked.
        build_side(config, client, experiment, envelope.payload, store.states)
        store.take(client, experiment, envelope.payload)
        remove_old(config.folder, config.keep_runs)
    except Exception as problem:  # why is told here, and only what kind it is to the server
        return failure(envelope, problem)
    return Envelope({"code": None})


def answer(config: NodeConfig, envelope: Envelope) -> Envelope:
    """The client's answer; the same bytes again if it gave it before."""
    from refprotofl.deploy.node_store import NodeStore

    route = Route.read(envelope.header)
    store = NodeStore(config.folder, route.run)
    told = store.assignment
    if told is None or told.client != route.client:
        return Envelope({NEEDS_RUN: True})
    key = route.key(envelope.payload)
    before = store.remembered(key)
    if before is not None:
        return before
    if route.reminds:
        return Envelope({NEEDS_REQUEST: True})
    try:
        given = _do(config, store, route, envelope.payload, told.digest)
        if given.header["code"] is None:
            store.remember(key, given, _sent(config, store, route, given))
    except Exception as problem:
        return failure(envelope, problem)
    return given


def _do(config: NodeConfig, store: "NodeStore", route: Route, payload: bytes, told: str) -> Envelope:
    from refprotofl.core.state import digest_state
    from refprotofl.engines.engine import Request
    from refprotofl.engines.local.host import Task
    from refprotofl.engines.local.store import Location
    from refprotofl.methods.base.schema import LOST
    from refprotofl.wire import encode

    host = _host(config, route.run, told)
    where = store.find(route.base, host.store, route.client)
    verb, asked = (LOST, encode({})) if where is None else (route.verb, payload)
    request = Request(route.client, verb, route.round, asked, route.keeps)
    outcome = host.do(Task(route.client, route.round, where or Location(), request))
    result, state = outcome.result, route.base
    if result.trouble is not None:
        print(f"Round {route.round}, {route.verb}: {result.trouble}", flush=True)
        return Envelope(Answered.to(route, code="data" if result.kind == "DataError" else "machine").header())
    if result.code is not None:
        print(f"Round {route.round}, {route.verb}: {store.logs.last(route.client)}", flush=True)
        return Envelope(Answered.to(route, code=result.code).header())
    if outcome.location is not None:
        state = digest_state(host.store.load(route.client, outcome.location).state)
        store.put(state, outcome.location, {*route.retain, route.base})
    if verb == "evaluate":
        store.keep_newest(state, route.round, payload)
    return Envelope(Answered.to(route, state=state).header(), result.payload)


def _sent(config: NodeConfig, store: "NodeStore", route: Route, given: Envelope) -> "Sent":
    """What the round's answers take with this one, joining and scores apart; more than the owner allows is refused."""
    from refprotofl.methods.base.schema import Refused

    before = store.sent(route.round, route.phase)
    if route.verb == "join" or not route.keeps:
        return before
    now = [*before, (route.phase, len(given.payload))]
    total = sum(size for _, size in now)
    if config.uplink_budget is not None and total > config.uplink_budget:
        raise Refused(
            f"Round {route.round}, {route.verb}: with this answer the round takes {total} bytes, more than this "
            f"node's uplink-budget = {config.uplink_budget}: it is not sent."
        )
    return now


def within_budget(config: NodeConfig, experiment: Experiment) -> Experiment:
    """The experiment as this node does it: it never sends more than its owner allows."""
    from refprotofl.methods.base.schema import LOST
    from refprotofl.wire import encode

    if config.uplink_budget is None:
        return experiment
    name = experiment.method.replace("-", "_")
    table = getattr(experiment, name, None)
    budget = getattr(table, "uplink_budget", None)
    if table is None or budget is None:
        raise InputError(
            f"This node has uplink-budget = {config.uplink_budget} bytes, but the experiment bounds no upload: it "
            "cannot take part. Run with refprotofl.uplink-budget or thin.uplink-budget, or take it out of the node's "
            "config."
        )
    words = len(encode({LOST: True})) + len(encode({}))  # that a client may say beside what it is asked for
    smaller = table.model_copy(update={"uplink_budget": min(budget, config.uplink_budget - words)})
    return experiment.model_copy(update={name: smaller})


@lru_cache(maxsize=1)
def _host(config: NodeConfig, run: str, told: str) -> "ClientHost":
    """The client's side; kept as long as the process lives. `told` is the digest of what the node knows of the run."""
    from refprotofl.deploy.node_store import TEST, NodeStore

    store = NodeStore(config.folder, run)
    known = store.assignment
    if known is None:
        raise DataError(f"{store.folder} has lost its experiment.")
    return build_side(config, known.client, known.experiment, store.read(TEST) or b"", store.states)


def build_side(config: NodeConfig, client: int, experiment: Experiment, test: bytes, folder: Path) -> "ClientHost":
    """An error says why this node cannot take part. `test` is the set that all clients are given, if there is one."""
    from refprotofl.core import numerics

    numerics.apply(experiment.numerics)
    import torch

    from refprotofl.core.devices import choose, make_repeatable
    from refprotofl.core.process import keep_freed_memory
    from refprotofl.deploy.node_data import client_data, load_images
    from refprotofl.federation.client_side import build_client_side
    from refprotofl.federation.models import prepare_models
    from refprotofl.methods.base.schema import ValidatedMessage
    from refprotofl.methods.catalogue import with_options
    from refprotofl.wire import decode

    torch.set_num_threads(1)
    keep_freed_memory()
    config.refuse_code(experiment)
    experiment = with_options(within_budget(config, experiment))
    device = choose(experiment.device)
    make_repeatable(device)
    shared = ValidatedMessage(decode(test)) if test else None
    own = client_data(load_images(config, experiment, client), shared, device)
    models = prepare_models(experiment, device, [client])
    try:
        return build_client_side(experiment, models, {client: own}.__getitem__, folder)
    except InputError as problem:
        budget = config.uplink_budget
        if budget is None:
            raise
        raise InputError(f"This node's uplink-budget = {budget} bytes cannot be kept: {problem}") from None


def failure(envelope: Envelope, problem: Exception) -> Envelope:
    """The answer to a message that nothing came of: a code, with the route of what was asked. The words stay here."""
    tell(problem)
    code = code_for(problem)
    try:
        return Envelope(Answered.to(Route.read(envelope.header), code=code).header())
    except Unreadable:  # a greeting and the experiment have no route
        return Envelope({"protocol": PROTOCOL, "code": code})


def code_for(problem: Exception) -> Code:
    """What the server is told of a problem. One of others', such as a broken torch, must not need torch to be told."""
    if isinstance(problem, MachineError | MemoryError | OSError):
        return "machine"
    if not isinstance(problem, RefProtoFLError):
        return "failed"
    from refprotofl.engines.local.host import code_of

    return code_of(problem)


def tell(problem: Exception) -> None:
    """To the node's own log, in full where it is not a sentence of ours."""
    if isinstance(problem, RefProtoFLError):
        print(str(problem), flush=True)
    else:
        print("".join(traceback.format_exception(problem)), flush=True)


def handle(config: NodeConfig, action: str, envelope: Envelope) -> Envelope:
    """Answer a message of the server, whatever is in it; what goes wrong is reported in the node's own log."""
    try:
        return ANSWERS[action](config, envelope)
    except Exception as problem:
        return failure(envelope, problem)


ANSWERS = {"hello": lambda config, _: greet(config), "run": take_run, "ask": answer}
