"""Fine-tuning after the last round ([finetune]): each client makes a model of its own from the common one."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import ALL, HEAD, Parts
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.training import classify, embed

if TYPE_CHECKING:
    from refprotofl.methods.base.client import Client

MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)  # from the common model to the fine-tuned one
OWN, OWN_ROUND = "own", "own_round"  # in a client's state: its own model (P,), and the round after which it was made


def own_model(client: "Client", round: int, common: Tensor) -> Tensor:
    """Return the vector (P,) of the client's own model, made from the common one (P,), which is loaded.

    Where samples are protected it is the fine-tuned one: to choose a mix would reveal the held-out samples, and no
    noise hides it.
    """
    if client.samples.sealed or not client.experiment.finetune.validation:
        return _finetuned(client, round, client.samples)
    learned, held_out = _split(client, round)
    tuned = _finetuned(client, round, learned)
    mixed = [common + mix * (tuned - common) for mix in MIXES]
    losses = [_loss(client, one, held_out) for one in mixed] if len(held_out) else [0.0]  # none: the common one
    return mixed[losses.index(min(losses))]


def _finetuned(client: "Client", round: int, samples: Samples) -> Tensor:
    """Return the vector (P,) after training on these samples: the head alone first, then the whole model."""
    table, order = client.experiment.finetune, client.stream("tune", round)
    lr = client.experiment.train.lr * table.rate

    def train(epochs: int, parts: Parts) -> None:
        if epochs:
            client.fit(round, samples=samples, parts=parts, order=order, epochs=epochs, lr=lr, scheduled=False)

    train(table.head_epochs, HEAD)
    train(table.epochs, ALL)
    return client.model.read(client.parts)


def _split(client: "Client", round: int) -> tuple[Samples, Samples]:
    """Return own samples to fine-tune on, and to choose by."""
    own = client.samples
    rows = own.rows[torch.from_numpy(client.stream("tune/split", round).permutation(len(own)))]
    held_out = client.experiment.finetune.held_out(len(rows))
    return Samples(own.inputs, own.labels, rows[held_out:]), Samples(own.inputs, own.labels, rows[:held_out])


def _loss(client: "Client", vector: Tensor, samples: Samples) -> float:
    """Return the mean cross-entropy: for few samples it is more precise than accuracy."""
    client.model.write(client.parts, vector)
    logits = classify(client.model, embed(client.model, samples.own_inputs))
    return float(functional.cross_entropy(logits[:, : client.num_classes], samples.own_labels))
