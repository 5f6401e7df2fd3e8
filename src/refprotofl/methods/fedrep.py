"""FedRep (Collins et al. 2021): a shared body and private heads, trained one after the other."""

from refprotofl.methods import sharing
from refprotofl.methods.base import Client
from refprotofl.methods.training import train_part
from refprotofl.models import BODY, HEAD
from refprotofl.wire import Message


class FedRepClient(Client):
    """Algorithm 1: the head on the received body, then the body under that head."""

    def train(self, round: int, message: Message) -> Message:
        received = sharing.load_shared(self, message)
        samples, order = self.training_samples(), self.stream("batches", round)
        table, options = self.experiment.train, self.experiment.fedrep
        head_table = table.model_copy(update={"local_epochs": options.head_epochs})
        body_table = table.model_copy(update={"local_epochs": options.body_epochs or table.local_epochs})
        train_part(self.model, HEAD, samples, head_table, order)
        train_part(self.model, BODY, samples, body_table, order)
        return sharing.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["shared"])  # type: ignore[arg-type]
