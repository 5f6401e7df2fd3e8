"""What a method sends in a round, as formulas that a person can check.

The symbols: P shared parameters, K those that a sparse upload keeps, m width of the embedding, C classes, N clients,
D public images. A client is taken to hold every class, a round to be one of many.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from refprotofl.experiment import Experiment
from refprotofl.methods.apud import number_to_send

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


@dataclass(frozen=True)
class Cost:
    """Values that a client sends and gets in a round, whatever their type."""

    up: str
    down: str


def weights(experiment: Experiment) -> Cost:
    return Cost("P", "P")


def refprotofl(experiment: Experiment) -> Cost:
    """With every class in the public set; what it lacks comes with its class id and count."""
    table = experiment.refprotofl
    anchors = " + C*m" if table.erpa else ""
    return Cost(("K" if table.apud else "P") + anchors, "P" + anchors)


def fednova(experiment: Experiment) -> Cost:
    return Cost("P + 2" if experiment.fednova.mu else "P + 1", "P")


def prototypes(experiment: Experiment) -> Cost:
    return Cost("C*m", "C*m")


def nothing(experiment: Experiment) -> Cost:
    return Cost("0", "0")


def symbols(experiment: Experiment, shared: int) -> dict[str, int]:
    """The symbols' values, with this many shared parameters."""
    num_classes = experiment.known_input.num_classes
    share = experiment.refprotofl.share
    return {
        "P": shared,
        "K": shared if share is None else number_to_send(share, shared),
        "m": experiment.model.embedding,
        "C": num_classes,
        "N": experiment.clients,
        "D": (experiment.public.per_class or 0) * len(experiment.public.classes or ()),
    }


def evaluate(formula: str, symbols: Mapping[str, int]) -> int:
    """The number that a formula of sums and products stands for."""
    return _value(ast.parse(formula, mode="eval").body, symbols)


def _value(node: ast.expr, symbols: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_value(node.left, symbols), _value(node.right, symbols))
    raise ValueError(f"{ast.unparse(node)} is neither a number, a symbol, a sum nor a product")
