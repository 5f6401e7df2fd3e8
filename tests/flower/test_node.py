"""A node's answers: the same bytes to a repeated request, in its process and after a restart."""

from pathlib import Path

import numpy as np
import pytest
from tests.deployments import node, restart_nodes

from refprotofl.deploy.headers import PROTOCOL, Route
from refprotofl.deploy.node import NEEDS_REQUEST, NEEDS_RUN, handle
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope
from refprotofl.records.folder import read_experiment
from refprotofl.wire import decode, encode

RUN = "0" * 32


@pytest.fixture
def config(apart: Path, undisturbed: Path, tmp_path: Path) -> NodeConfig:
    """A node that knows a run."""
    config = NodeConfig.read(node(apart, tmp_path, 0))
    found = {"run": RUN, "client": 0, "experiment": read_experiment(undisturbed).plain()}
    assert handle(config, "run", Envelope(found)).header == {"code": None}
    return config


def request(**changed: object) -> Envelope:
    route = Route(RUN, 0, 1, 1, 0, "join", True, "", [])
    return Envelope({**route.header(), **changed}, encode({}))


def test_a_repeated_request_is_answered_with_the_same_bytes_after_a_restart_too(config: NodeConfig) -> None:
    first = handle(config, "ask", request())
    assert first.header["code"] is None
    assert decode(first.payload) == {"samples": len(np.load(config.data_path)["y_train"])}
    assert handle(config, "ask", request(attempt=1)) == first
    restart_nodes()
    assert handle(config, "ask", request(attempt=2)) == first


def test_a_reminder_is_answered_from_disk_or_asks_for_the_request(config: NodeConfig) -> None:
    key = Route.read(request().header).key(request().payload)
    reminder = Envelope(request(reminds=key, attempt=1).header)
    assert handle(config, "ask", reminder).header == {NEEDS_REQUEST: True}
    first = handle(config, "ask", request())
    assert handle(config, "ask", reminder) == first


@pytest.mark.parametrize("changed", [{"run": "1" * 32}, {"client": 1}])
def test_a_request_of_an_unknown_run_or_for_another_client_is_not_worked_on(
    config: NodeConfig, changed: dict[str, object]
) -> None:
    assert handle(config, "ask", request(**changed)).header == {NEEDS_RUN: True}


def test_a_greeting_reports_the_version_and_the_name_and_nothing_of_the_data(config: NodeConfig) -> None:
    assert handle(config, "hello", Envelope({})) == Envelope({"protocol": PROTOCOL, "name": "node-0"})
