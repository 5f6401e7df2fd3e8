"""The ClientApp of Flower's simulation. Nodes of a deployment do not run it (node_loop.py)."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from refprotofl.engines.flower.records import unwrap, wrap

app = ClientApp()


@app.query("task")
def task(message: Message, context: Context) -> Message:
    """Answer for a simulated client; the run folder is on this machine."""
    from refprotofl.engines.flower.simulation import do_task

    return Message(wrap(do_task(unwrap(message.content))), reply_to=message)
