"""A client's side: all that it needs to answer, built where its data are and nobody else's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from refprotofl.basics.state import State
from refprotofl.engines.local.host import ClientHost
from refprotofl.engines.local.shelf import DiskShelf
from refprotofl.engines.local.store import ClientStore
from refprotofl.evaluation.scoring import TestSet
from refprotofl.experiment import Experiment
from refprotofl.methods import find_method
from refprotofl.methods.base import Seat
from refprotofl.methods.training import Samples
from refprotofl.sides.models import Models


@dataclass(frozen=True)
class ClientData:
    """What one client has: its own samples, and what it is scored on."""

    samples: Samples
    test: TestSet


def build_client_side(
    experiment: Experiment,
    models: Models,
    data: Callable[[int], ClientData],
    folder: Path,
    *,
    store: Callable[[Path, Callable[[int], State]], ClientStore] = ClientStore,
    shelf: Callable[[Path], DiskShelf] = DiskShelf,
) -> ClientHost:
    """A place for one client or for many, whose private states lie in `folder`.

    `experiment` is resolved; `data` gives what a client of this place has, `models` those that they need. `store` and
    `shelf` keep the clients' states and the messages that they were given.
    """
    method, names = find_method(experiment.method), experiment.backbones
    messages, memo = shelf(folder), dict[str, Tensor]()

    def seat(number: int) -> Seat:
        own = data(number)
        return Seat(
            number=number,
            experiment=experiment,
            samples=own.samples,
            test=own.test,
            model=models.by_name[names[number]],
            parts=method.shared(experiment),
            shelf=messages,
            memo=memo,
        )

    return ClientHost(method.client, seat, store(folder, lambda number: models.initial[names[number]]))
