"""The federation: server side, client side, the round loop and the session that runs it."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.federation.callbacks import Callback
    from refprotofl.federation.client_side import ClientData, build_client_side
    from refprotofl.federation.local_run import Site, Workers, build_worker_host, worker_specifications
    from refprotofl.federation.loop import Setup
    from refprotofl.federation.models import initial_states, known_digests, model_of, prepare_models
    from refprotofl.federation.participation import Presence, count_steps, draw_cohort, draw_evaluated
    from refprotofl.federation.provenance import changed_since, current_folder, origin_of, refuse_changed
    from refprotofl.federation.resolution import common_model_problem, prepare, resolve, resolve_alike
    from refprotofl.federation.resume import keep_last_round
    from refprotofl.federation.server_side import ServerSide, build_server_side
    from refprotofl.federation.session import RunResult, default_folder, run, run_session
    from refprotofl.federation.simulation import Federation, load_federation, spent_after
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Callback",
    "ClientData",
    "Federation",
    "Presence",
    "RunResult",
    "ServerSide",
    "Setup",
    "Site",
    "Workers",
    "build_client_side",
    "build_server_side",
    "build_worker_host",
    "changed_since",
    "common_model_problem",
    "count_steps",
    "current_folder",
    "default_folder",
    "draw_cohort",
    "draw_evaluated",
    "initial_states",
    "keep_last_round",
    "known_digests",
    "load_federation",
    "model_of",
    "origin_of",
    "prepare",
    "prepare_models",
    "refuse_changed",
    "resolve",
    "resolve_alike",
    "run",
    "run_session",
    "spent_after",
    "worker_specifications",
]
