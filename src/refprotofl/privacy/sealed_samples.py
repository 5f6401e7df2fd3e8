"""A client's own samples under sample-level privacy: usable only through training and class means that add noise.

A method's code can count them and pass them on. Only `open_samples` gives access to their contents. It is for the
training loop and the class means of this package, which add noise and record it; a test keeps every method from
calling it.
"""

from typing import ClassVar, NoReturn

from torch import Tensor

from refprotofl.core import PrivacyError
from refprotofl.methods import Samples
from refprotofl.privacy.dp_sgd import SampleNoise
from refprotofl.privacy.interface import setting


class PrivateSamples(Samples):
    """Samples whose inputs, labels and rows cannot be read."""

    sealed: ClassVar[bool] = True
    _samples: Samples
    _noise: SampleNoise

    def __init__(self, samples: Samples, noise: SampleNoise) -> None:
        object.__setattr__(self, "_samples", samples)
        object.__setattr__(self, "_noise", noise)

    def __len__(self) -> int:
        """Return the number of samples, which the relation `zero-out-one` leaves public."""
        return len(self._samples)

    def __repr__(self) -> str:
        return f"PrivateSamples({len(self)})"

    @property
    def inputs(self) -> Tensor:
        self._refuse("inputs")

    @property
    def labels(self) -> Tensor:
        self._refuse("labels")

    @property
    def rows(self) -> Tensor:
        self._refuse("rows")

    def joined(self, inputs: Tensor, labels: Tensor) -> "PrivateSamples":
        """Return these samples together with others, all of them private."""
        samples, noise = _contents(self)
        return PrivateSamples(samples.joined(inputs, labels), noise)

    def relabelled(self, own_labels: Tensor) -> NoReturn:
        self._refuse("labels")

    def _refuse(self, field: str) -> NoReturn:
        raise PrivacyError(
            f"{setting('sample')}: a method may not read the {field} of a client's own samples, because nothing would "
            "add noise to the result or account for it; use train() and class_means() of refprotofl.methods"
        )


def open_samples(samples: Samples) -> tuple[Samples, SampleNoise | None]:
    """Return the samples as they are, and the noise that must be added to all that is made of them, if sealed."""
    return _contents(samples) if isinstance(samples, PrivateSamples) else (samples, None)


def _contents(samples: PrivateSamples) -> tuple[Samples, SampleNoise]:
    return samples._samples, samples._noise
