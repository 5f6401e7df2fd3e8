"""The operator's connection to a SuperLink, through the operator's door."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx
from flwr.common.serde import user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from refprotofl.core import InputError, MachineError
from refprotofl.deploy.admission import fingerprint
from refprotofl.deploy.operator import NodeStatus, RunStatus
from refprotofl.deploy.server_process import check_certificates
from refprotofl.deploy.site import Site
from refprotofl.engines.flower.bundle import build_bundle
from refprotofl.engines.flower.internals import SecretInterceptor, check_version
from refprotofl.records import sha256

Answer = TypeVar("Answer")

_REASON = re.compile(r"\[(\d+)\] (.*)", re.DOTALL)


class FlowerOperator:
    def __init__(self, site: Site) -> None:
        check_version()
        self._site = site

    def _connected(self) -> ControlHttpClient:
        site = self._site
        return ControlHttpClient.from_server_address(
            site.operator_address,
            site.keys.insecure,
            None if site.authority is None else site.authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="refprotofl"), SecretInterceptor(site.secret())],
        )

    def start(self, config: dict[str, str]) -> int:
        bundle, values = build_bundle(), dict[str, bool | float | int | str](config)
        request = StartRunRequest(
            fab=Fab(hash_str=sha256(bundle), content=bundle), override_config=user_config_to_proto(values)
        )
        return int(self._ask(lambda client: client.StartRun(request)).run_id)

    def stop(self, run: int) -> bool:
        return bool(self._ask(lambda client: client.StopRun(StopRunRequest(run_id=run))).success)

    def run(self, run: int) -> RunStatus:
        return self._runs(ListRunsRequest(run_id=run))[0]

    def runs(self) -> list[RunStatus]:
        return self._runs(ListRunsRequest())

    def _runs(self, request: ListRunsRequest) -> list[RunStatus]:
        found = self._ask(lambda client: client.ListRuns(request)).run_dict.values()
        return [_status(run) for run in sorted(found, key=lambda run: run.pending_at, reverse=True)]

    def nodes(self) -> list[NodeStatus]:
        found = self._ask(lambda client: client.ListNodes(ListNodesRequest())).nodes_info
        nodes = [NodeStatus(one.node_id, one.name, fingerprint(one.public_key), one.status) for one in found]
        return [node for node in nodes if node.status != "unregistered"]

    def register(self, name: str, public_key: bytes) -> None:
        request = RegisterNodeRequest(public_key=public_key, name=name)
        self._ask(lambda client: client.RegisterNode(request))

    def unregister(self, node: int) -> None:
        self._ask(lambda client: client.UnregisterNode(UnregisterNodeRequest(node_id=node)))

    def certificates(self) -> dict[str, float]:
        return {}  # a node has a key only

    def renew(self, names: Sequence[str]) -> list[str]:
        return []

    def _ask(self, call: Callable[[ControlHttpClient], Answer]) -> Answer:
        folder = self._site.folder
        try:
            with self._connected() as client:
                return call(client)
        except httpx.HTTPStatusError as problem:
            status = problem.response.status_code
            if status == 401:
                raise InputError(
                    f"The server on {self._site.operator_address} does not accept the secret of {folder}."
                ) from None
            raise MachineError(
                f"The server refused the request (HTTP {status}); its log is {self._site.log}."
            ) from None
        except httpx.ConnectError:
            check_certificates(self._site)  # an expired one is why no connection comes about
            raise InputError(f"The server of {folder} is not running: refprotofl deploy start {folder}") from None
        except httpx.HTTPError as problem:
            raise MachineError(
                f"The server of {folder} does not answer ({type(problem).__name__}); its log is {self._site.log}."
            ) from None


def _status(run: object) -> RunStatus:
    found = run.status  # type: ignore[attr-defined]
    status = f"{found.status}:{found.sub_status}" if found.sub_status else found.status
    coded = _REASON.fullmatch(found.details)
    code, reason = (int(coded[1]), coded[2]) if coded else (4, found.details)
    return RunStatus(run.run_id, status, reason, code)  # type: ignore[attr-defined]
