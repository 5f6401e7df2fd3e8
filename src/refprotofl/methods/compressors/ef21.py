"""EF21 (Richtárik et al. 2021): top-k corrections of what both sides know of a client's change."""

from typing import ClassVar

from refprotofl.methods import Ef21Feedback, ErrorFeedback
from refprotofl.methods.compressors.top_k import TopK


class Ef21(TopK):
    """Sends the k largest values of the change minus the memory, which both sides add to the memory.

    The server steps by everyone's latest memory, absent clients included.
    """

    leaves_zeros: ClassVar[bool] = False  # the server averages memories, which fill up

    @property
    def feedback(self) -> Ef21Feedback:
        return Ef21Feedback()

    @property
    def downlink_feedback(self) -> ErrorFeedback:
        """EF21-P (Gruntkowska et al. 2022): a step is compressed from the clients' vector to the server's."""
        return ErrorFeedback()
