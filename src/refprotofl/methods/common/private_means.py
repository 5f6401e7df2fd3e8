"""Class means of a client's own samples: as they are, or noised where single samples are protected."""

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.methods import erpa
from refprotofl.methods.core.client import Client
from refprotofl.methods.core.private_samples import open_samples
from refprotofl.methods.core.samples import Samples
from refprotofl.methods.core.training import embed


def class_means(
    client: Client, samples: Samples, *, without: Tensor | None = None, unit: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the means (C, m) and counts (C,) of the samples' embeddings under the weights that are loaded.

    `without` names classes that are left out, as everybody knows; `unit` scales embeddings to length 1.
    """
    data, mechanism = open_samples(samples)
    width, classes = client.model.feature.out_features, client.num_classes
    if mechanism is not None and without is not None and len(without) == classes:  # nothing is told, nothing is spent
        return torch.zeros(classes, width), torch.zeros(classes, dtype=torch.int64)
    rows = data.rows if without is None else data.rows[~torch.isin(data.own_labels, without)]
    embeddings = embed(client.model, data.images_of(rows))
    embeddings = functional.normalize(embeddings) if unit else embeddings
    if mechanism is None:
        return erpa.class_prototypes(embeddings, data.labels[rows], classes)
    means, counts = mechanism.class_means(embeddings, data.labels[rows], classes)
    if without is not None:
        counts[without] = 0
    return means * (counts > 0).unsqueeze(1), counts
