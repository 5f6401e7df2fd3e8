"""Fine-tuning on a device, without a server: the newest shared model becomes the owner's own."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import CPU, InputError, State, make_repeatable, numerics, stream, tensor_of
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.node_data import load_samples
from refprotofl.export.node_model import Kept, is_node_store, keep_finetuned, load_kept, load_own, read_kept
from refprotofl.methods import Samples, classify, embed, train
from refprotofl.models import SplitModel

MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)  # from the shared model to the fine-tuned one
HELD_OUT = 10  # one in this many samples chooses the mix


@dataclass(frozen=True)
class Personalised:
    """`before` and `after`: shares of the device's own test samples that are classified correctly; None without any."""

    client: int
    round: int
    samples: int
    mix: float
    before: float | None
    after: float | None
    path: Path


def finetune(config: NodeConfig, epochs: int) -> Personalised:
    """Fine-tune the shared model in a node's store on its data, and keep it there as the device's model.

    One in ten samples is held out to choose the mix of shared and fine-tuned weights, so that few samples do no harm.
    """
    if not is_node_store(config.folder):
        raise InputError(f"{config.folder} holds no run yet: start the node, and wait until it takes part in one.")
    kept = read_kept(config.folder)
    experiment = kept.experiment
    config.refuse_code(experiment)
    numerics.apply(experiment.numerics)
    make_repeatable(CPU)
    own = load_samples(config, experiment, kept.client)
    test = torch.from_numpy(own.own_test.inputs), torch.from_numpy(own.own_test.labels)
    before = _accuracy(_used_so_far(config.folder, kept), *test)
    samples = torch.from_numpy(own.train.inputs), torch.from_numpy(own.train.labels)
    rows = stream(experiment.seed, "personalise/split", client=kept.client).permutation(len(samples[1]))
    learned, chosen_by = torch.from_numpy(rows[len(rows) // HELD_OUT :]), rows[: len(rows) // HELD_OUT]
    model = load_kept(kept, trust_code=True).model
    shared, table = _weights(model), experiment.train.in_round(1, 1, epochs=epochs)
    train(model, Samples(*samples, learned), table, stream(experiment.seed, "personalise", client=kept.client))
    mix = _choose(model, shared, _weights(model), samples[0][chosen_by], samples[1][chosen_by])
    path, after = keep_finetuned(kept, _weights(model)), _accuracy(model, *test)
    return Personalised(kept.client, kept.round, len(learned), mix, before, after, path)


def _used_so_far(folder: Path, kept: Kept) -> SplitModel:
    """Return the model that the device has used so far; the shared one if it had none."""
    try:
        return load_own(folder, trust_code=True).model
    except InputError:
        return load_kept(kept, trust_code=True).model


def _choose(model: SplitModel, shared: State, tuned: State, inputs: Tensor, labels: Tensor) -> float:
    """Load the mix of weights with the lowest loss on samples that were not learned from, and return it."""
    losses = {}
    for mix in MIXES if len(labels) else MIXES[-1:]:
        model.write_private(_mix(shared, tuned, mix))
        losses[mix] = (
            float(functional.cross_entropy(classify(model, embed(model, inputs)), labels)) if len(labels) else 0.0
        )
    best = min(losses, key=losses.__getitem__)
    model.write_private(_mix(shared, tuned, best))
    return best


def _mix(shared: State, tuned: State, mix: float) -> State:
    def between(name: str) -> Tensor:
        first, last = tensor_of(shared, name), tensor_of(tuned, name)
        return first + mix * (last - first) if first.is_floating_point() else last

    return {name: between(name) for name in shared}


def _weights(model: SplitModel) -> State:
    return dict(model.read_private(()))


def _accuracy(model: SplitModel, inputs: Tensor, labels: Tensor) -> float | None:
    if not len(labels):
        return None
    return float((classify(model, embed(model, inputs)).argmax(dim=1) == labels).float().mean())
