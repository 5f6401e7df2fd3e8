"""FedRep (Collins et al. 2021): a shared body and private heads, trained one after the other."""

from refprotofl.core import BODY, HEAD
from refprotofl.methods import Client, ValidatedMessage
from refprotofl.methods.builtin.fedrep import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


class FedRepClient(Client):
    """Algorithm 1: the head on the received body, then the body under that head."""

    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        order = self.stream("batches", round)
        self.fit(round, parts=HEAD, order=order, epochs=self.options.head_epochs)
        self.fit(round, parts=BODY, order=order, epochs=self.options.body_epochs)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
