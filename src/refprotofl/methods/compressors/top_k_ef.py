"""Top-k with error feedback (Stich et al. 2018, Karimireddy et al. 2019)."""

from refprotofl.methods import ErrorFeedback
from refprotofl.methods.compressors.top_k import TopK


class TopKErrorFeedback(TopK):
    """Sends the k largest values of the change and the memory; what is not sent stays in the memory."""

    @property
    def feedback(self) -> ErrorFeedback:
        return ErrorFeedback(self.table.decay)
