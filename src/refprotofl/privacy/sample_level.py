"""Sample-level privacy: nothing that a client sends reveals much about one of its samples, not even to the server.

Clients train by DP-SGD on sealed samples, and every use of the samples is checked against what is accounted for.
"""

import math
from collections.abc import Sequence
from functools import partial
from statistics import median_high
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from refprotofl.core import InputError, is_reference
from refprotofl.methods import Method, Samples, SampleUse, depends_on_rounds, find_method
from refprotofl.models import SplitModel
from refprotofl.privacy.accounted_client import AccountedClient, MakeClient, planned, public_size
from refprotofl.privacy.accounting import Relation, Spent, bounded, epsilon
from refprotofl.privacy.dp_sgd import SampleNoise, Streams, clipped_sums
from refprotofl.privacy.interface import Mechanism, setting
from refprotofl.privacy.sealed_samples import PrivateSamples

if TYPE_CHECKING:
    from refprotofl.methods import Loss

RELATION: Relation = "zero-out-one"


class SampleLevel(Mechanism):
    unit: ClassVar[str] = "sample"
    protects: ClassVar[bool] = True
    simulation_only: ClassVar[str] = ""  # on a node the noise comes from its own entropy
    repeats_rounds: ClassVar[bool] = False  # a second answer under the same noise would remove the noise
    compares_answers: ClassVar[bool] = True
    own_aggregator: ClassVar[bool] = True
    exact_statistics: ClassVar[bool] = False

    def undefined_reason(self, method: Method) -> str:
        means = method.releases(self.experiment).sample
        if isinstance(means, str):
            return means
        if method.pooled:
            return "its server gets all clients' samples"
        closing = [verb for verb, use in self._uses().items() if use.closing]
        # An extended run would close twice, but be charged once.
        if closing and not depends_on_rounds(self.experiment):
            return f"it uses samples in {closing[0]!r}, after the last round, without depends_on_rounds = True"
        return ""

    def check_model(self, name: str, model: SplitModel) -> None:
        if is_reference(name):  # built-in models are known to be separable
            check_separable(model, name)

    def sample_noise(self, streams: Streams) -> SampleNoise:
        return SampleNoise(self.table, streams)

    def seal(self, samples: Samples, streams: Streams) -> PrivateSamples:
        """Return samples that can only be used with noise; those that are sealed keep theirs."""
        return samples if isinstance(samples, PrivateSamples) else PrivateSamples(samples, self.sample_noise(streams))

    def accounted(self, make: MakeClient) -> MakeClient:
        return partial(AccountedClient, make)

    def finetune_steps(self, samples: int) -> int:
        """Return the steps that are accounted for: samples are not held out, as choosing by them would need noise."""
        size = samples + public_size(self.experiment)
        closing = [planned(self.experiment, use, size) for use in self._uses().values() if use.closing]
        return sum(use.steps.total() for use in closing)

    def spent(self, rounds: int, sizes: Sequence[int], participations: Sequence[int]) -> Spent:
        clients, closed = list(zip(sizes, participations, strict=True)), rounds >= self.experiment.rounds
        by_kind = {client: self._epsilon(*client, closed) for client in set(clients)}
        epsilons = [by_kind[client] for client in clients]
        return {
            "unit": "sample",
            "relation": RELATION,
            "epsilon": bounded(max(epsilons)),
            "delta": self.table.delta,
            "noise": self.table.noise,
            "clip": self.table.clip,
            "rounds": rounds,
            "epsilon_median": bounded(median_high(epsilons)),
        }

    def _uses(self) -> dict[str, SampleUse]:
        return dict(find_method(self.experiment.method).planned_uses(self.experiment))

    def _epsilon(self, samples: int, rounds: int, closed: bool) -> float:
        """Return the epsilon of one client: each training step is a noised sum over a Poisson sample.

        Each verb counts as the method declares it, in every round in which the client was asked. `closed` adds what
        follows the last round.
        """
        from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

        if self.table.noise == 0:
            return math.inf if rounds else 0.0
        noised, events = GaussianDpEvent(self.table.noise), list[tuple[DpEvent, int]]()
        for use in self._uses().values():
            times = int(closed and rounds > 0) if use.closing else rounds
            done = planned(self.experiment, use, samples)
            events += [(PoissonSampledDpEvent(1 / steps, noised), times * taken) for steps, taken in done.steps.items()]
            events += [(noised, times * done.means)]
        return epsilon([SelfComposedDpEvent(*one) for one in events if one[1]], RELATION, self.table.delta)


def check_separable(model: SplitModel, name: str) -> None:
    """Raise InputError if the gradient of a single sample cannot be computed, by trying it on two samples."""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise InputError(
            f"{setting('sample')}: model.name = {name!r} has batch norm, which makes a sample's gradient depend on the "
            "rest of its batch; use a model without it, such as one with group norm."
        )
    moving = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    model.train()
    try:
        clipped_sums(model, moving, _first_output(model), model.blank(2), torch.zeros(2).long(), 1.0)
    except Exception as problem:
        line = str(problem).strip().partition("\n")[0]
        raise InputError(
            f"{setting('sample')}: the gradient of a single sample cannot be computed for model.name = {name!r} "
            f"({type(problem).__name__}: {line}). The model must draw nothing at random and change nothing in place."
        ) from None


def _first_output(model: SplitModel) -> "Loss":
    return lambda inputs, labels: (model(inputs)[:, 0].mean(), None)
