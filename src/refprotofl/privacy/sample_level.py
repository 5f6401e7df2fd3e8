"""DP-SGD (Abadi et al. 2016): every sample's gradient is shortened, their sum is noised.

What comes of such gradients (weights, prototypes of public images) is as private as they are. A batch is a Poisson
sample: each of a client's samples is in it or not, by a draw of its own, which is what the accountant counts on.

A client's own samples under `privacy.unit = "sample"`: usable through the noised path alone.

A method's code can count them and hand them on. Only `open_samples` gives access to what they hold. It is for the
training loop and the class means of this package, which add noise and record it; a test keeps every method from
calling it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from refprotofl.core.errors import InputError, PrivacyError
from refprotofl.experiment.sections import Privacy, Train
from refprotofl.methods.base.samples import Samples
from refprotofl.models import SplitModel

if TYPE_CHECKING:
    from refprotofl.methods.base.training import Loss


HELD = 1 << 25  # values of single samples' gradients that are in memory at a time
SURE = 3.0  # standard deviations of noise that a class's count must stand out by


def steps_per_pass(samples: int, batch_size: int) -> int:
    """As many as without noise. Each sample is in a step's batch with probability 1 / steps: once a pass on average."""
    return math.ceil(samples / batch_size)


class _Lossy(nn.Module):
    """A loss that is a function of the model's parameters, too."""

    def __init__(self, model: SplitModel, loss: "Loss") -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._loss(inputs, labels)


class SampleMechanism:
    """The noise of one client's answer to one request, and the record of how often it was used.

    Whatever uses private samples takes its noise from here, so that what was done can be compared with what is
    accounted for.
    """

    def __init__(self, table: Privacy, stream: Callable[[str, int], np.random.Generator]) -> None:
        """`stream` returns the client's random stream for a purpose and a round."""
        self._table = table
        self._stream = stream
        self._request: tuple[str, int] | None = None  # verb, round
        self._draws: dict[str, np.random.Generator] = {}
        self.steps: Counter[int] = Counter()  # noised steps, by the number of steps of a pass over the samples
        self.means = 0  # noised class means
        self.penalty = 0.0  # of the last training, exact: for guards alone

    def begin(self, verb: str, round: int) -> None:
        """Bind the noise to the request that is answered; the first call counts."""
        self._request = self._request or (verb, round)

    def batches(
        self, samples: Samples, table: Train, order: np.random.Generator, device: torch.device
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and labels of each batch, which may be empty."""
        steps = steps_per_pass(len(samples), table.batch_size)
        for _ in range(table.local_epochs * steps):
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
        """The noised gradient of the mean loss by parameter, and the exact loss and penalty.

        Sums are divided by the expected batch size: `samples` over the steps `per_pass`.
        """
        sums, total, penalty = clipped_sums(model, moving, loss, inputs, labels, self._table.clip)
        draw, expected = self._draw("gradients"), samples / per_pass
        self.steps[per_pass] += 1
        noised = [(one + self._noise(draw, one)) / expected for one in sums]
        return noised, total / expected, penalty / expected

    def class_means(self, embeddings: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """Noised means (C, m) and counts (C,) of embeddings (n, m) with labels (n,)."""
        draw, table = self._draw("means"), self._table
        self.means += 1
        return noised_means(embeddings, labels, num_classes, table.prototype_clip, table.noise, draw)

    def _draw(self, purpose: str) -> np.random.Generator:
        """The stream of a request's noise: no noise is used twice, whatever a round consists of."""
        if self._request is None:
            raise PrivacyError("private samples were used outside a request, so that nothing accounts for it")
        verb, round = self._request
        name = f"privacy/{purpose}" if verb == "train" else f"privacy/{purpose}/{verb}"
        if name not in self._draws:
            self._draws[name] = self._stream(name, round)
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
    """By parameter the sum of the samples' gradients, each as a whole at most `clip` long; sums of loss and penalty.

    The loss is asked about one sample at a time: it must be a mean over the batch's samples, each by itself.
    """
    weights = {f"model.{name}": parameter.detach() for name, parameter in moving.items()}
    lossy = _Lossy(model, loss)

    def of_one(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        total, penalty = functional_call(lossy, weights, (one.unsqueeze(0), label.unsqueeze(0)))
        return total, torch.zeros_like(total) if penalty is None else penalty

    each = vmap(grad_and_value(of_one, has_aux=True), in_dims=(None, 0, 0))
    sums = [torch.zeros_like(one) for one in weights.values()]
    total = torch.zeros((), device=model.device)
    penalty = torch.zeros((), device=model.device)
    at_once = max(1, HELD // max(1, sum(one.numel() for one in sums)))
    for some, of_some in zip(inputs.split(at_once), labels.split(at_once), strict=True):
        if not len(some):
            continue
        found, (losses, penalties) = each(weights, some, of_some)  # (b, *shape) by name; (b,), (b,)
        found = list(found.values())
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in found]).norm(dim=0)  # (b,)
        shares = (clip / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)
        for place, one in enumerate(found):
            sums[place] += (shares @ one.flatten(1)).view_as(sums[place])
        total += losses.sum()
        penalty += penalties.sum()
    return sums, total, penalty


def check_separable(model: SplitModel, name: str, shape: tuple[int, int, int]) -> None:
    """Refuses a model of which a sample's own gradient is not to be had; it is tried on two images."""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise InputError(
            f'privacy.unit = "sample": model.name = {name!r} has batch norm, by which a sample\'s gradient depends on '
            "the others of its batch; use a model without it, such as one with group norm."
        )
    moving = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    model.train()
    try:
        clipped_sums(model, moving, _first_output(model), torch.zeros(2, *shape), torch.zeros(2).long(), 1.0)
    except Exception as problem:
        line = str(problem).strip().partition("\n")[0]
        raise InputError(
            f'privacy.unit = "sample": of model.name = {name!r} the gradient of a single sample cannot be computed '
            f"({type(problem).__name__}: {line}). It must draw nothing at random and change nothing in place."
        ) from None


def _first_output(model: SplitModel) -> "Loss":
    return lambda inputs, labels: (model(inputs)[:, 0].mean(), None)


def noised_means(
    embeddings: Tensor, labels: Tensor, num_classes: int, clip: float, noise: float, draw: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """One Gaussian mechanism over the sums of shortened embeddings and the counts of all classes.

    A count is worth `clip` of an embedding's length, so that a sample moves the whole by clip * sqrt(2) at most. A
    class whose noised count does not stand out counts as absent, but for the largest: somebody must be served.
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


class PrivateSamples(Samples):
    """Samples whose images, labels and rows cannot be read."""

    _samples: Samples
    _mechanism: SampleMechanism

    def __init__(self, samples: Samples, mechanism: SampleMechanism) -> None:
        object.__setattr__(self, "_samples", samples)
        object.__setattr__(self, "_mechanism", mechanism)

    def __len__(self) -> int:
        """The number of samples, which the relation `zero-out-one` leaves public."""
        return len(self._samples)

    def __repr__(self) -> str:
        return f"PrivateSamples({len(self)})"

    @property
    def images(self) -> Tensor:
        self._refuse("images")

    @property
    def labels(self) -> Tensor:
        self._refuse("labels")

    @property
    def rows(self) -> Tensor:
        self._refuse("rows")

    def joined(self, images: Tensor, labels: Tensor) -> "PrivateSamples":
        """These samples and some more, all of them private."""
        samples, mechanism = _contents(self)
        return PrivateSamples(samples.joined(images, labels), mechanism)

    def relabelled(self, own_labels: Tensor) -> NoReturn:
        self._refuse("labels")

    def _refuse(self, what: str) -> NoReturn:
        raise PrivacyError(
            f'privacy.unit = "sample": a method may not read the {what} of a client\'s own samples, as nothing would '
            "noise or account for what it makes of them; use train() and class_means() of refprotofl.methods"
        )


def open_samples(samples: Samples) -> tuple[Samples, SampleMechanism | None]:
    """The samples as they are, and the mechanism that must noise what is made of them, if they are private."""
    return _contents(samples) if isinstance(samples, PrivateSamples) else (samples, None)


def _contents(samples: PrivateSamples) -> tuple[Samples, SampleMechanism]:
    return samples._samples, samples._mechanism
