"""The ClientApp. A message may start a process of its own for it, so what is not needed at once is not imported.

A node with a data-path in its config is a device of its own; without one it is a part of Flower's simulation.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from refprotofl.engines.flower.node import ANSWERS, failure, greet
from refprotofl.engines.flower.node_config import NodeConfig
from refprotofl.engines.flower.parcels import Parcel, unwrap, wrap
from refprotofl.engines.flower.routes import PROTOCOL
from refprotofl.engines.flower.worker import hand_over
from refprotofl.errors import InputError

app = ClientApp()


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    if "data-path" not in context.node_config and "partition-id" in context.node_config:
        return _reply(message, Parcel({"protocol": PROTOCOL, "simulated": True}))
    try:
        return _reply(message, greet(NodeConfig.read(context.node_config)))
    except InputError as problem:
        print(problem, flush=True)
        return _reply(message, Parcel({"protocol": PROTOCOL, "code": "input"}))


@app.query("run")
def run(message: Message, context: Context) -> Message:
    return _answered(message, context, "run")


@app.query("ask")
def ask(message: Message, context: Context) -> Message:
    return _answered(message, context, "ask")


@app.query("task")
def task(message: Message, context: Context) -> Message:
    """A simulated client's answer: the run folder is on this machine."""
    from refprotofl.engines.flower.simulated import do_task

    return _reply(message, do_task(unwrap(message.content)))


def _answered(message: Message, context: Context, action: str) -> Message:
    """What goes wrong is told in the node's own log: Flower would send it to the server, word for word."""
    parcel = Parcel({})
    try:
        parcel = unwrap(message.content)
        config = NodeConfig.read(context.node_config)
        given = hand_over(config, action, parcel) if config.worker else None
        return _reply(message, ANSWERS[action](config, parcel) if given is None else given)
    except Exception as problem:
        return _reply(message, failure(parcel, problem))


def _reply(message: Message, parcel: Parcel) -> Message:
    return Message(wrap(parcel), reply_to=message)
