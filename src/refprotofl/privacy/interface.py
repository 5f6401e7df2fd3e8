"""The interface of privacy mechanisms: the noise that each adds to a run, and the features that it excludes.

Methods, the round loop and the studies ask the mechanism of their experiment. None of them reads the unit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from refprotofl.core import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods import find_method
from refprotofl.privacy.accounting import Spent, accountant_installed

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from refprotofl.methods import Aggregator, Method, Samples
    from refprotofl.models import SplitModel
    from refprotofl.privacy.accounted_client import MakeClient
    from refprotofl.privacy.dp_sgd import SampleNoise, Streams


def setting(unit: str) -> str:
    """Return the setting that chooses a unit, as errors and listings show it."""
    return f'privacy.unit = "{unit}"'


class Mechanism(ABC):
    """The privacy mechanism of one experiment; it is stateless.

    Each mechanism declares everything that it allows or excludes. The default methods add nothing.
    """

    unit: ClassVar[str]
    protects: ClassVar[bool]  # there is an epsilon
    simulation_only: ClassVar[str]  # the reason why it is refused in a deployment
    repeats_rounds: ClassVar[bool]  # a round that failed may be repeated without the outlier
    compares_answers: ClassVar[bool]  # the server may compare clients' answers with each other
    own_aggregator: ClassVar[bool]  # a method may replace the aggregator that the experiment names
    exact_statistics: ClassVar[bool]  # exact statistics of all clients' samples may be used for normalisation

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.table = experiment.privacy

    @property
    def setting(self) -> str:
        return setting(self.unit)

    # Checks before a run

    @abstractmethod
    def undefined_reason(self, method: "Method") -> str:
        """Return why this mechanism is not defined for the method, or nothing if it is."""

    def check_method(self) -> None:
        """Raise InputError if the method does not declare what this mechanism must know."""
        reason = self.undefined_reason(find_method(self.experiment.method))
        if reason:
            raise InputError(f"{self.setting} is not defined for method = {self.experiment.method!r}: {reason}.")

    def check_accountant(self) -> None:
        """Raise InputError, before anything is computed, if epsilon could not be reported at the end."""
        if self.protects and not accountant_installed():
            raise InputError(f'{self.setting} needs the accountant: pip install "refprotofl[privacy]".')

    def check_model(self, name: str, model: "SplitModel") -> None:  # noqa: B027 - most mechanisms take any model
        """Raise InputError if this model cannot be trained under the mechanism."""

    # At a client

    def sample_noise(self, streams: "Streams") -> "SampleNoise | None":
        """Return the noise for all that one answer makes of a client's own samples, if they are protected.

        `streams` returns the client's random stream for a purpose and a round.
        """
        return None

    def seal(self, samples: "Samples", streams: "Streams") -> "Samples":
        """Return the samples as a method may hold them."""
        return samples

    def accounted(self, make: "MakeClient") -> "MakeClient":
        """Return a constructor of clients whose use of private samples is checked."""
        return make

    def mask_stream(self, round: int) -> "np.random.Generator | None":
        """Return the stream of the one mask that all clients send under, or None if each chooses its own."""
        return None

    def finetune_steps(self, samples: int) -> int:
        """Return the steps after the last round of a client with this many samples of its own."""
        table = self.experiment.finetune
        return table.passes * self.experiment.train.steps_per_epoch(samples - table.held_out(samples))

    # At the server

    def aggregator(self, named: "Aggregator", round: Callable[[], int]) -> "Aggregator":
        """Return the aggregator for changes of the shared vector; `named` is the one that the experiment names."""
        return named

    def check_round(self, aggregator: "Aggregator", round: int) -> None:  # noqa: B027 - nothing to check by default
        """Raise PrivacyError if the round did not aggregate as it is accounted for."""

    def mean_prototypes(self, prototypes: "Tensor", round: int, mean: "Callable[[Tensor], Tensor]") -> "Tensor":
        """Return the mean over clients of prototypes that all of them send, (clients, C, m) -> (C, m)."""
        return mean(prototypes)

    # Accounting

    @abstractmethod
    def spent(self, rounds: int, sizes: Sequence[int], participations: Sequence[int]) -> Spent | None:
        """Return the privacy loss after this many rounds; None if nothing is protected.

        `sizes` are the numbers of samples that each client trains on, `participations` the numbers of rounds in which
        it was asked. What a method does after the last round counts from then on.
        """


class NoPrivacy(Mechanism):
    """No privacy mechanism: answers are used as they are, and nothing is excluded."""

    unit: ClassVar[str] = "none"
    protects: ClassVar[bool] = False
    simulation_only: ClassVar[str] = ""
    repeats_rounds: ClassVar[bool] = True
    compares_answers: ClassVar[bool] = True
    own_aggregator: ClassVar[bool] = True
    exact_statistics: ClassVar[bool] = True

    def undefined_reason(self, method: "Method") -> str:
        return ""

    def spent(self, rounds: int, sizes: Sequence[int], participations: Sequence[int]) -> None:
        return None
