"""FedRep (Collins et al. 2021): a shared body and private heads, trained one after the other."""

from refprotofl.core.parts import BODY, HEAD
from refprotofl.methods.base.client import Client
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.base.training import train_part
from refprotofl.methods.builtin.fedrep import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


class FedRepClient(Client):
    """Algorithm 1: the head on the received body, then the body under that head."""

    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        samples, order = self.training_samples(), self.stream("batches", round)
        table, options = self.experiment.train, self.options
        head_table = table.model_copy(update={"local_epochs": options.head_epochs})
        body_table = table.model_copy(update={"local_epochs": options.body_epochs or table.local_epochs})
        train_part(self.model, HEAD, samples, head_table, order)
        train_part(self.model, BODY, samples, body_table, order)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
