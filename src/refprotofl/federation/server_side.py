"""The server side: the method's server with what it needs; no client's data or state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from refprotofl.core import InputError, is_reference
from refprotofl.evaluation import PROTOCOLS, Plan, client_metrics, mean_metrics, model_metrics, plan_of, scored_part
from refprotofl.experiment import Experiment
from refprotofl.federation.models import Models, initial_digests, model_of
from refprotofl.methods import Cohort, Samples, Server, ServerContext, find_method, options_of
from refprotofl.models import ALL
from refprotofl.privacy import Spent
from refprotofl.records import Event


@dataclass(frozen=True)
class ServerSide:
    experiment: Experiment
    server: Server
    test: tuple[Tensor, Tensor]  # images (T, channels, H, W), labels (T,) that one aggregated model is scored on
    models: Models
    build: Callable[[], Server]

    def renewed(self) -> "ServerSide":
        """Return the same with a new server."""
        return replace(self, server=self.build())

    @cached_property
    def initial_digests(self) -> list[str]:
        """The digest of each client's initial state."""
        return initial_digests(self.experiment, self.models.initial)

    @property
    def full_size(self) -> int:
        """The number of parameters of the whole model, the mean over clients."""
        sizes = {name: sum(model.sizes(ALL)) for name, model in self.models.by_name.items()}
        return round(sum(sizes[name] for name in self.experiment.backbones) / self.experiment.clients)

    def global_metrics(self, plan: Plan) -> dict[str, float]:
        """Return the metrics of the one aggregated model; none where the method has no such model."""
        model = self.server.global_model() if plan.scores("global") else None
        if model is None or not len(self.test[1]):
            return {}
        num_classes = self.experiment.known_input.num_classes
        return model_metrics(model, *scored_part(plan, *self.test, num_classes), num_classes, self.models.memo)

    def evaluate(self, cohort: Cohort, privacy: Spent | None) -> Event:
        """Return the `evaluation` event: each protocol's mean over the clients, and each client's own numbers."""
        server, plan = self.server, plan_of(self.experiment, cohort.round)
        scores: dict[int, dict[str, dict[str, float]]] = {}  # by client, protocol and metric
        confusion = np.zeros((server.num_classes, server.num_classes), np.int64)
        drawn = 0 < plan.samples < len(self.test[1])  # are some of the test samples scored only
        for client, counts in server.scores(cohort) if plan.asks_clients else ():
            drawn = drawn or 0 < plan.samples == counts["own_tested"]
            scores[client] = client_metrics(counts)
            confusion += counts.tensor("confusion").numpy() if "confusion" in counts else 0
        per_client = {
            protocol: [
                scores.get(client, {}).get(protocol, {}).get("accuracy") for client in range(self.experiment.clients)
            ]
            for protocol in PROTOCOLS
            if any(protocol in score for score in scores.values())
        }
        metrics = mean_metrics([scores[client] for client in sorted(scores)]) | {"global": self.global_metrics(plan)}
        return {
            "event": "evaluation",
            "round": cohort.round,
            "accuracy": {protocol: metrics.get(protocol, {}).get("accuracy") for protocol in PROTOCOLS},
            "metrics": {protocol: metrics[protocol] for protocol in PROTOCOLS if metrics.get(protocol)},
            **({} if privacy is None else {"privacy": privacy}),
            "loss": metrics.get("personal", {}).get("loss"),
            "clients": sorted(scores),
            "trained_clients": sum("personal_before" in score for score in scores.values()),
            "per_client": per_client,
            "confusion": confusion.tolist(),
            "facts": server.facts(cohort.round),
            **({"subset": plan.samples} if drawn else {}),
        }


def check_first_weights(context: ServerContext) -> None:
    """Refuse a user's backbone whose weights do not follow from the seed, if clients are to derive them."""
    experiment = context.experiment
    if experiment.first_weights == "sent" or not context.parts or not any(map(is_reference, experiment.backbones)):
        return
    if not model_of(experiment, 0).read(context.parts).equal(context.model.read(context.parts)):
        raise InputError(
            f"model.name = {experiment.model.name!r} has other initial weights each time it is built, so that clients "
            'cannot derive them from the seed: draw them by torch alone, or set first-weights = "sent".'
        )


def build_server_side(
    experiment: Experiment,
    models: Models,
    *,
    public: Samples | None,
    test: tuple[Tensor, Tensor],
    pooled: Samples | None = None,
    most_samples: int | None = None,
    own_tested: Sequence[int] | None = None,
) -> ServerSide:
    """Return the server side. `experiment` is resolved; `pooled` is for a method that trains on all data in one place.

    `most_samples` are those of the largest client, `own_tested` each client's own test samples, where they are known.
    """
    method = find_method(experiment.method)
    context = ServerContext(
        experiment=experiment,
        model=models.by_name[experiment.backbones[0]],
        parts=method.shared(experiment),
        public=public,
        pooled=pooled,
        test=test,
        options=options_of(experiment),
        feedback=method.feedback(experiment),
        most_samples=most_samples,
        own_tested=own_tested,
    )
    check_first_weights(context)
    untouched = {name: value.clone() for name, value in context.model.state_dict().items()}

    def build() -> Server:
        context.model.load_state_dict(untouched)  # others in this process have written into it since
        return method.server(context)

    server = build()
    if not server.privacy.own_aggregator and server.aggregator is not server.named_aggregator:
        raise InputError(
            f"{server.privacy.setting} cannot protect method = {experiment.method!r}, which has its own aggregator."
        )
    if not experiment.aggregates_plainly and server.aggregator is not server.named_aggregator:
        raise InputError(
            f"aggregate = {experiment.aggregate!r} and min-senders = {experiment.min_senders} have no effect on "
            f"method = {experiment.method!r}, which has its own aggregator: leave both out."
        )
    return ServerSide(experiment, server, test, models, build)
