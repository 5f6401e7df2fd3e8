"""The ClientApp. A message may start a process of its own for it, so what is not needed at once is not imported."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from refprotofl.engines.flower.parcels import unwrap, wrap

app = ClientApp()


@app.query("task")
def task(message: Message, context: Context) -> Message:
    """A simulated client's answer: the run folder is on this machine."""
    from refprotofl.engines.flower.simulated import do_task

    return Message(wrap(do_task(unwrap(message.content))), reply_to=message)
