"""Error feedback: the use that is made of the part of a change that is not sent. Nothing here needs torch."""

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

FeedbackName = Literal["none", "ef", "ef21"]


class Feedback:
    """No feedback: what is not sent is lost."""

    client_memory: ClassVar[bool] = False  # a client keeps a vector from round to round
    server_memory: ClassVar[bool] = False  # the server keeps the same vector for each client

    def target(self, vector: "Tensor", memory: "Tensor") -> "Tensor":
        """Return what is to be sent for a vector (P,), given the memory (P,)."""
        return vector

    def remember(self, target: "Tensor", sent: "Tensor", memory: "Tensor") -> "Tensor":
        """Return the memory (P,) after `sent`, as the receiver decodes it, was sent for `target`."""
        return memory


class ErrorFeedback(Feedback):
    """The unsent part is added to the next change (Stich et al. 2018, Karimireddy et al. 2019)."""

    client_memory: ClassVar[bool] = True

    def __init__(self, decay: float = 1.0) -> None:
        self._decay = decay

    def target(self, vector: "Tensor", memory: "Tensor") -> "Tensor":
        return vector + self._decay * memory

    def remember(self, target: "Tensor", sent: "Tensor", memory: "Tensor") -> "Tensor":
        return target - sent


class Ef21Feedback(Feedback):
    """Both sides keep an estimate of a client's change and correct it from round to round (Richtárik et al. 2021)."""

    client_memory: ClassVar[bool] = True
    server_memory: ClassVar[bool] = True

    def target(self, vector: "Tensor", memory: "Tensor") -> "Tensor":
        return vector - memory

    def remember(self, target: "Tensor", sent: "Tensor", memory: "Tensor") -> "Tensor":
        return memory + sent


FEEDBACKS: dict[FeedbackName, Feedback] = {"none": Feedback(), "ef": ErrorFeedback(), "ef21": Ef21Feedback()}
