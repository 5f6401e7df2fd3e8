"""What a method sends in a round, as formulas that a person can check.

The symbols: P shared parameters, K those that a sparse upload keeps, m width of the embedding, C classes, N clients,
D public images. A client is taken to hold every class, a round to be one of many.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from refprotofl.experiment import Experiment

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


def nothing(experiment: Experiment) -> Cost:
    return Cost("0", "0")


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
