"""The client side: all that a client needs to answer, built where its data are."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from refprotofl.core import State
from refprotofl.engines import Answering, ClientHost, ClientLogs, ClientStore, DiskBlobStore
from refprotofl.evaluation import TestSet
from refprotofl.experiment import Experiment
from refprotofl.federation.models import Models
from refprotofl.methods import ClientContext, Samples, Scope, create_compressor, find_method, options_of
from refprotofl.privacy import OwnEntropy, create_mechanism


@dataclass(frozen=True)
class ClientData:
    """A client's data: its own samples, and the test set that it is scored on."""

    samples: Samples
    test: TestSet


def build_client_side(
    experiment: Experiment,
    models: Models,
    data: Callable[[int], ClientData],
    folder: Path,
    *,
    store: Callable[[Path, Callable[[int], State]], ClientStore] = ClientStore,
    blobs: Callable[[Path], DiskBlobStore] = DiskBlobStore,
    make: Callable[[ClientContext, State], Answering] | None = None,
    entropy: OwnEntropy | None = None,
) -> ClientHost:
    """Return a host for one client or many, whose private states are kept in `folder`.

    `experiment` is resolved; `data` returns a client's data, `models` are those that the clients need. `store` and
    `blobs` keep the clients' states and the messages that they got to keep. `make` makes a client, if it is not the
    method's own. `entropy` is where a device's noise comes from.
    """
    method, names = find_method(experiment.method), experiment.backbones
    parts, options, feedback = method.shared(experiment), options_of(experiment), method.feedback(experiment)
    messages = {
        name: method.server.message_schemas(Scope(experiment, model, parts, options))
        for name, model in models.by_name.items()
    }
    given = blobs(folder)
    compressor, privacy = create_compressor(experiment), create_mechanism(experiment)

    def context(number: int) -> ClientContext:
        own = data(number)
        return ClientContext(
            client_id=number,
            experiment=experiment,
            samples=own.samples,
            test=own.test,
            model=models.by_name[names[number]],
            parts=parts,
            blobs=given,
            initial_weights=models.shared,
            compressor=compressor,
            privacy=privacy,
            memo=models.memo,
            options=options,
            feedback=feedback,
            messages=messages[names[number]],
            entropy=entropy,
        )

    states = store(folder, lambda number: models.initial[names[number]])
    answering: Callable[[ClientContext, State], Answering] = make or method.client
    return ClientHost(privacy.accounted(answering), context, states, ClientLogs(folder.parent).write)
