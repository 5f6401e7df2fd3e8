"""A node of a deployment: its answers to greetings, news of a run and requests."""

import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.core import DataError, InputError, MachineError, RefProtoFLError
from refprotofl.deploy.headers import PROTOCOL, Answered, Route
from refprotofl.deploy.log import log
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope, Unreadable
from refprotofl.engines import Code
from refprotofl.experiment import Experiment

if TYPE_CHECKING:
    from refprotofl.deploy.node_privacy import Account
    from refprotofl.deploy.node_store import NodeStore, Sent
    from refprotofl.engines import ClientHost
    from refprotofl.privacy import OwnEntropy

NEEDS_RUN = "needs-run"  # the answer of a node that does not know the run, or has lost it
NEEDS_REQUEST = "needs-request"  # the answer to a reminder of a request that the node does not have


def greet(config: NodeConfig) -> Envelope:
    """Answer a greeting: the version of the protocol and the node's name; nothing of its data."""
    return Envelope({"protocol": PROTOCOL, "name": config.name})


def take_run(config: NodeConfig, envelope: Envelope) -> Envelope:
    """Store the experiment and the test set of a run; answer with a code if the node cannot or must not take part."""
    from refprotofl.deploy.node_store import NodeStore, remove_old

    try:
        run, client = str(envelope.header["run"]), int(envelope.header["client"])
        if config.client not in (None, client):
            raise InputError(
                f"The server made this node client {client}, but client = {config.client} in node.toml: remove it, or "
                "ask the operator to admit the node as that client."
            )
        experiment, store = Experiment.parse(envelope.header["experiment"]), NodeStore(config.folder, run)
        # A misfit is detected before any request.
        build_side(config, client, experiment, envelope.payload, store.states)
        store.take(client, experiment, envelope.payload)
        remove_old(config.folder, config.keep_runs)
    except Exception as problem:  # the reason stays in the node's log, the server gets a code
        return failure(envelope, problem)
    return Envelope({"code": None})


def take_final(config: NodeConfig, envelope: Envelope) -> Envelope:
    """Store the shared part after a run's last round: with the node's own state it is the device's model."""
    from refprotofl.deploy.node_store import NodeStore, remove_old

    try:
        header = envelope.header
        run, client, round, state = (
            str(header["run"]),
            int(header["client"]),
            int(header["round"]),
            str(header["state"]),
        )
        experiment, store = Experiment.parse(header["experiment"]), NodeStore(config.folder, run)
        known = store.assignment
        if known is None or known.client != client:
            config.refuse_code(experiment)
            store.take(client, experiment, b"")
            remove_old(config.folder, config.keep_runs)
        held = store.held()
        own = state if state in held else next(reversed(held), "")
        store.keep_newest(own, round, envelope.payload)
        log(f"The shared part after round {round} has come; it is the last one of its run.", "final", round=round)
    except Exception as problem:
        return failure(envelope, problem)
    return Envelope({"code": None})


def answer(config: NodeConfig, envelope: Envelope) -> Envelope:
    """Answer a request; a repeated one gets the same bytes again."""
    from refprotofl.deploy.node_store import NodeStore

    route = Route.read(envelope.header)
    store = NodeStore(config.folder, route.run)
    assignment = store.assignment
    if assignment is None or assignment.client != route.client:
        return Envelope({NEEDS_RUN: True})
    key = route.key(envelope.payload)
    before = store.remembered(key)
    if before is not None:
        return before
    if route.reminds:
        return Envelope({NEEDS_REQUEST: True})
    try:
        given = _do(config, store, route, envelope.payload, assignment.digest)
        if given.header["code"] is None:
            store.remember(key, given, _sent(config, store, route, given))
    except Exception as problem:
        return failure(envelope, problem)
    return given


def _do(config: NodeConfig, store: "NodeStore", route: Route, payload: bytes, assigned: str) -> Envelope:
    from refprotofl.core import digest_state
    from refprotofl.engines import Location, Request, Task
    from refprotofl.methods import LOST
    from refprotofl.wire import encode

    host, account = _host(config, route.run, assigned)
    if account is not None:
        account.enter(route, route.key(payload))
    where = store.find(route.base, host.store, route.client)
    verb, asked = (LOST, encode({})) if where is None else (route.verb, payload)
    request = Request(route.client, verb, route.round, asked, route.keeps)
    outcome = host.do(Task(route.client, route.round, where or Location(), request))
    result, state = outcome.result, route.base
    if result.trouble is not None:
        log(f"Round {route.round}, {route.verb}: {result.trouble}", "failed", round=route.round, verb=route.verb)
        return Envelope(Answered.to(route, code="data" if result.kind == "DataError" else "machine").header())
    if result.code is not None:
        why = store.logs.last(route.client)
        log(f"Round {route.round}, {route.verb}: {why}", "failed", round=route.round, verb=route.verb)
        return Envelope(Answered.to(route, code=result.code).header())
    if outcome.location is not None:
        state = digest_state(host.store.load(route.client, outcome.location).state)
        store.put(state, outcome.location, {*route.retain, route.base})
    if account is not None and route.keeps and verb != "join":
        account.show(route.round)
    if verb == "evaluate":
        store.keep_newest(state, route.round, payload)
    return Envelope(Answered.to(route, state=state).header(), result.payload)


def _sent(config: NodeConfig, store: "NodeStore", route: Route, given: Envelope) -> "Sent":
    """Return the bytes sent in the round, with this answer; raise Refused above the owner's uplink budget.

    Joining and evaluation do not count.
    """
    from refprotofl.methods import Refused

    before = store.sent(route.round, route.phase)
    if route.verb == "join" or not route.keeps:
        return before
    now = [*before, (route.phase, len(given.payload))]
    total = sum(size for _, size in now)
    if config.uplink_budget is not None and total > config.uplink_budget:
        raise Refused(
            f"Round {route.round}, {route.verb}: this answer brings the round to {total} bytes, above this node's "
            f"uplink-budget = {config.uplink_budget}. It is not sent."
        )
    return now


def within_budget(config: NodeConfig, experiment: Experiment) -> Experiment:
    """Return the experiment with the upload bounded by the owner's uplink budget."""
    from refprotofl.methods import LOST
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
    words = len(encode({LOST: True})) + len(encode({}))  # overhead of messages other than the upload
    smaller = table.model_copy(update={"uplink_budget": min(budget, config.uplink_budget - words)})
    return experiment.model_copy(update={name: smaller})


@lru_cache(maxsize=1)
def _host(config: NodeConfig, run: str, assigned: str) -> "tuple[ClientHost, Account | None]":
    """Return the client side of a run, cached, and the account of its noise where samples are protected.

    `assigned` is the digest of the node's assignment.
    """
    from refprotofl.deploy.node_data import load_samples
    from refprotofl.deploy.node_privacy import Account, own_entropy, protects_samples
    from refprotofl.deploy.node_store import TEST, NodeStore

    store = NodeStore(config.folder, run)
    known = store.assignment
    if known is None:
        raise DataError(f"{store.folder} has lost its experiment.")
    experiment, test = known.experiment, store.read(TEST) or b""
    if not protects_samples(experiment):
        return build_side(config, known.client, experiment, test, store.states), None
    entropy = own_entropy(store)
    account = Account(store, experiment, entropy, len(load_samples(config, experiment, known.client).train.labels))
    return build_side(config, known.client, experiment, test, store.states, entropy), account


def build_side(
    config: NodeConfig,
    client: int,
    experiment: Experiment,
    test: bytes,
    folder: Path,
    entropy: "OwnEntropy | None" = None,
) -> "ClientHost":
    """Build the client side of a run; raise an error that says why this node cannot take part.

    `test`: the common test set, encoded, if there is one. `entropy`: the source of noise where samples are protected.
    """
    from refprotofl.core import numerics

    numerics.apply(experiment.numerics)
    import torch

    from refprotofl.core import keep_freed_memory, make_repeatable
    from refprotofl.core.devices import choose
    from refprotofl.deploy.node_data import client_data, load_samples, without_own_test
    from refprotofl.deploy.node_privacy import protects_samples
    from refprotofl.federation import build_client_side, prepare_models
    from refprotofl.methods import ValidatedMessage, with_options
    from refprotofl.models import check_precision
    from refprotofl.privacy import create_mechanism
    from refprotofl.wire import decode

    torch.set_num_threads(1)
    keep_freed_memory()
    config.refuse_code(experiment)
    check_precision(experiment.train.precision, experiment.numerics)
    experiment = with_options(within_budget(config, experiment))
    device = choose(experiment.device)
    make_repeatable(device)
    create_mechanism(experiment).check_accountant()
    shared, samples = ValidatedMessage(decode(test)) if test else None, load_samples(config, experiment, client)
    if protects_samples(experiment):
        samples = without_own_test(samples)  # exact scores of its samples would be no part of epsilon
    own = client_data(samples, experiment.known_input.field, shared, device)
    models = prepare_models(experiment, device, [client])
    try:
        return build_client_side(experiment, models, {client: own}.__getitem__, folder, entropy=entropy)
    except InputError as problem:
        budget = config.uplink_budget
        if budget is None:
            raise
        raise InputError(f"This node's uplink-budget = {budget} bytes is too small: {problem}") from None


def failure(envelope: Envelope, problem: Exception) -> Envelope:
    """Return the answer to a message that failed: a code and its route. The reason stays in the node's log."""
    log_problem(problem)
    code = code_for(problem)
    try:
        return Envelope(Answered.to(Route.read(envelope.header), code=code).header())
    except Unreadable:  # a greeting and the experiment have no route
        return Envelope({"protocol": PROTOCOL, "code": code})


def code_for(problem: Exception) -> Code:
    """Return the code of a problem. Problems of other packages are classified without importing torch."""
    if isinstance(problem, MachineError | MemoryError | OSError):
        return "machine"
    if not isinstance(problem, RefProtoFLError):
        return "failed"
    from refprotofl.engines import code_of

    return code_of(problem)


def log_problem(problem: Exception) -> None:
    """Print a problem to the node's log, with its stack trace if it is unexpected."""
    if isinstance(problem, RefProtoFLError):
        log(str(problem), "failed")
    else:
        log("".join(traceback.format_exception(problem)), "failed")


def handle(config: NodeConfig, action: str, envelope: Envelope) -> Envelope:
    """Answer a message of the server, whatever is in it; what goes wrong is reported in the node's own log."""
    try:
        return ANSWERS[action](config, envelope)
    except Exception as problem:
        return failure(envelope, problem)


ANSWERS = {"hello": lambda config, _: greet(config), "run": take_run, "ask": answer, "final": take_final}
