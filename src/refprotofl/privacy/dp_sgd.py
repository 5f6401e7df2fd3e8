"""DP-SGD (Abadi et al. 2016): each sample's gradient is clipped, and noise is added to their sum.

Everything computed from such gradients (weights, prototypes of public samples) is as private as they are. A batch is a
Poisson sample: each of a client's samples is in it or not, by an independent draw. The accountant relies on that.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from refprotofl.core import PrivacyError
from refprotofl.experiment import Privacy, Train
from refprotofl.methods import Samples
from refprotofl.models import SplitModel
from refprotofl.privacy.own_entropy import OwnEntropy

if TYPE_CHECKING:
    from refprotofl.methods import Loss

HELD = 1 << 25  # values of per-sample gradients in memory at a time
SURE = 3.0  # standard deviations of noise by which a class's count must exceed 0

Streams = Callable[[str, int], np.random.Generator]  # a client's random stream for a purpose and a round


class _LossModule(nn.Module):
    """A loss as a function of the model's parameters."""

    def __init__(self, model: SplitModel, loss: "Loss") -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._loss(inputs, labels)


class SampleNoise:
    """The noise of one client's answer to one request, and the record of how often it was used.

    All code that uses private samples takes its noise from here, so that what was done can be compared with what is
    accounted for.
    """

    def __init__(self, table: Privacy, streams: Streams) -> None:
        self._table = table
        self._streams = streams
        self._request: tuple[str, int] | None = None  # verb, round
        self._draws: dict[str, np.random.Generator] = {}
        self.steps: Counter[int] = Counter()  # noised steps, by the number of steps of a pass over the samples
        self.means = 0  # noised class means
        self.penalty = 0.0  # of the last training, exact: for guards only

    def begin(self, verb: str, round: int) -> None:
        """Bind the noise to the request that is answered; only the first call has an effect."""
        self._request = self._request or (verb, round)

    def batches(
        self, samples: Samples, table: Train, order: np.random.Generator, device: torch.device
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows and labels of each batch, which may be empty.

        There are as many steps as without noise; at a batch probability of 1 / steps a sample is used once on average.
        """
        if isinstance(self._streams, OwnEntropy):
            order = self._draw("batches")  # the accountant assumes that the members of a batch are secret
        steps = table.steps_per_epoch(len(samples))
        for _ in range(table.steps(len(samples))):
            rows = samples.rows[torch.from_numpy(order.random(len(samples)) < 1 / steps)]
            yield rows.to(device), samples.labels[rows].to(device)

    def gradients(
        self,
        model: SplitModel,
        moving: Mapping[str, nn.Parameter],
        loss: "Loss",
        inputs: Tensor,
        labels: Tensor,
        samples: int,
        per_pass: int,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return the noised gradient of the mean loss by parameter, and the exact loss and penalty.

        Sums are divided by the expected batch size: `samples` over the steps `per_pass`.
        """
        sums, total, penalty = clipped_sums(model, moving, loss, inputs, labels, self._table.clip)
        draw, expected = self._draw("gradients"), samples / per_pass
        self.steps[per_pass] += 1
        noised = [(one + self._noise(draw, one)) / expected for one in sums]
        return noised, total / expected, penalty / expected

    def class_means(self, embeddings: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """Return noised means (C, m) and counts (C,) of embeddings (n, m) with labels (n,)."""
        draw, table = self._draw("means"), self._table
        self.means += 1
        return noised_means(embeddings, labels, num_classes, table.prototype_clip, table.noise, draw)

    def _draw(self, purpose: str) -> np.random.Generator:
        """Return the stream of a request's noise. Each verb has its own, so that no noise is used twice in a round."""
        if self._request is None:
            raise PrivacyError("private samples were used outside of a request, where nothing accounts for them")
        verb, round = self._request
        name = f"privacy/{purpose}" if verb == "train" else f"privacy/{purpose}/{verb}"
        if name not in self._draws:
            self._draws[name] = self._streams(name, round)
        return self._draws[name]

    def _noise(self, draw: np.random.Generator, like: Tensor) -> Tensor:
        drawn = torch.from_numpy(draw.standard_normal(tuple(like.shape), dtype=np.float32))
        return (self._table.noise * self._table.clip * drawn).to(like.device)


def clipped_sums(
    model: SplitModel,
    moving: Mapping[str, nn.Parameter],
    loss: "Loss",
    inputs: Tensor,
    labels: Tensor,
    clip: float,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return by parameter the sum of per-sample gradients clipped to the norm `clip`, and sums of loss and penalty.

    The loss is computed for one sample at a time: it must be a mean of terms that each depend on one sample.
    """
    weights = {f"model.{name}": parameter.detach() for name, parameter in moving.items()}
    module = _LossModule(model, loss)

    def of_one(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        total, penalty = functional_call(module, weights, (one.unsqueeze(0), label.unsqueeze(0)))
        return total, torch.zeros_like(total) if penalty is None else penalty

    per_sample = vmap(grad_and_value(of_one, has_aux=True), in_dims=(None, 0, 0))
    sums = [torch.zeros_like(one) for one in weights.values()]
    total = torch.zeros((), device=model.device)
    penalty = torch.zeros((), device=model.device)
    at_once = max(1, HELD // max(1, sum(one.numel() for one in sums)))
    for some, some_labels in zip(inputs.split(at_once), labels.split(at_once), strict=True):
        if not len(some):
            continue
        by_name, (losses, penalties) = per_sample(weights, some, some_labels)  # (b, *shape) by name; (b,), (b,)
        gradients = list(by_name.values())
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in gradients]).norm(dim=0)  # (b,)
        shares = (clip / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)
        for i, one in enumerate(gradients):
            sums[i] += (shares @ one.flatten(1)).view_as(sums[i])
        total += losses.sum()
        penalty += penalties.sum()
    return sums, total, penalty


def noised_means(
    embeddings: Tensor, labels: Tensor, num_classes: int, clip: float, noise: float, draw: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return class means and counts from one Gaussian mechanism over the sums of clipped embeddings and the counts.

    A count weighs as much as an embedding of length `clip`, so a sample moves the whole by at most clip * sqrt(2). A
    class whose noised count is not clearly above 0 counts as absent, except for the largest: one class must be there.
    """
    short = embeddings * (clip / embeddings.norm(dim=1, keepdim=True).clamp(min=clip))
    sums = torch.zeros(num_classes, embeddings.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, short.to(torch.float64))
    spread = noise * math.sqrt(2)
    sums += spread * clip * torch.from_numpy(draw.standard_normal(tuple(sums.shape)))
    counts = torch.bincount(labels, minlength=num_classes) + spread * torch.from_numpy(
        draw.standard_normal(num_classes)
    )
    held = counts >= max(1.0, SURE * spread)
    held[counts.argmax()] = True
    means = torch.where(held.unsqueeze(1), sums / counts.clamp(min=1).unsqueeze(1), 0.0)
    return means.to(torch.float32), torch.where(held, counts.round().clamp(min=1), 0).long()
