"""A node whose answers are none: python -m tests.flower.hostile_node KIT. It prints each request that it gets."""

import sys
from itertools import count
from pathlib import Path

from tests.flower.breaking import nonsense

from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope
from refprotofl.engines.flower import node_loop

TURNS = count(1)


def handle(config: NodeConfig, action: str, envelope: Envelope) -> Envelope:
    print(f"asked: {action}", flush=True)
    return nonsense(action, envelope, next(TURNS))


if __name__ == "__main__":
    vars(node_loop)["handle"] = handle
    node_loop.serve(Path(sys.argv[1]))
