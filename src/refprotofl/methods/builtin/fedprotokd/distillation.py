"""Teaching over public images: many teachers merged, images weighed, a student that follows soft targets."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.methods.builtin.fedprotokd import Options
from refprotofl.methods.core import guards
from refprotofl.methods.core.client import Client
from refprotofl.methods.core.fields import Received
from refprotofl.methods.core.samples import Samples
from refprotofl.methods.core.training import train


def merge_logits(uploads: Iterable[Tensor]) -> Tensor:
    """Of each image the mean of the clients' logits (n, C), each weighted by its variance over the classes.

    Who is sure of an image has logits far apart, and so says more about it.
    """
    stacked = torch.stack(list(uploads)).to(torch.float64)  # (clients, n, C)
    weights = stacked.var(dim=2, correction=0, keepdim=True)  # (clients, n, 1)
    total = weights.sum(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
    return ((weights * stacked).sum(dim=0) / total).to(torch.float32)


def importance(features: Tensor, labels: Tensor, anchors: Tensor) -> Tensor:
    """How much each image counts, (n,), 1 on average: the closer to its class's prototype the more.

    exp(-distance / mean distance), so that it does not depend on the scale of the embedding.
    """
    distances = (features - anchors[labels]).norm(dim=1)
    closeness = torch.exp(-distances / distances.mean().clamp(min=torch.finfo(torch.float32).tiny))
    return closeness / closeness.mean()


def taught_loss(logits: Tensor, targets: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Mean of weight * T^2 * KL(softmax(targets / T), softmax(logits / T)) over the batch."""
    student = functional.log_softmax(logits / temperature, dim=1)
    teacher = functional.log_softmax(targets / temperature, dim=1)
    divergence = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=1)  # (B,)
    return (weights * divergence).mean() * temperature**2


def learn_from(client: Client, round: int, images: Tensor, message: Received, table: Options) -> None:
    """The client's model follows the received targets on the public images, and is kept."""
    if table.distil == 0:
        return
    client.model.write_private(client.state)
    targets = message.tensor("targets").to(client.model.device)
    weights = message.tensor("importance").to(client.model.device)

    def loss(inputs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        taught = table.distil * taught_loss(client.model(inputs), targets[rows], weights[rows], table.temperature)
        return taught, taught

    rows = torch.arange(len(images))
    order = client.stream("distil", round)
    # The images' numbers take the labels' place: they tell the loss which targets belong to a batch.
    trained = train(client.model, Samples(images, rows, rows), client.experiment.train, order, loss=loss)
    guards.alignment_happened(trained.penalty, table.distil, torch.tensor([True]), "fedprotokd.distil")
    client.keep_trained(round)
