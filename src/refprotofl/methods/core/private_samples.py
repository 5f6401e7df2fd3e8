"""A client's own samples under `privacy.unit = "sample"`: usable through the noised path alone.

A method's code can count them and hand them on. Only `open_samples` gives access to what they hold. It is for the
training loop and the class means of this package, which add noise and record it; a test keeps every method from
calling it.
"""

from typing import NoReturn

from torch import Tensor

from refprotofl.errors import PrivacyError
from refprotofl.methods.core.private_training import SampleMechanism
from refprotofl.methods.core.samples import Samples


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
