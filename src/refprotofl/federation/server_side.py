"""The server side: the method's server with what it needs; no client's data or state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from refprotofl.core.errors import InputError
from refprotofl.evaluation.scoring import model_metrics
from refprotofl.experiment import Experiment
from refprotofl.federation.models import Models, initial_digests
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.server import Server, ServerContext
from refprotofl.methods.catalogue import find_method, options_of
from refprotofl.models import ALL


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

    def global_metrics(self) -> dict[str, float]:
        """Return the metrics of the one aggregated model; none where the method has no such model."""
        model = self.server.global_model()
        if model is None or not len(self.test[1]):
            return {}
        return model_metrics(model, *self.test, self.experiment.known_input.num_classes)


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
            f"aggregate = {experiment.aggregate!r} and min-senders = {experiment.min_senders} have no say in "
            f"method = {experiment.method!r}, which has an aggregator of its own: leave both out."
        )
    return ServerSide(experiment, server, test, models, build)
