"""The numbers behind the formulas of what a method sends in a round."""

import ast
import operator
from collections.abc import Callable, Mapping

from refprotofl.experiment import Experiment
from refprotofl.methods.declaration import Cost

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def symbols(cost: Cost, experiment: Experiment, shared: int) -> dict[str, int]:
    """The symbols' values, with this many shared parameters."""
    public = experiment.public
    return {
        "P": shared,
        "m": experiment.model.embedding,
        "C": experiment.known_input.num_classes,
        "N": experiment.clients,
        "D": (public.per_class or 0) * len(public.classes or ()),
        **{name: value(shared) for name, value in (cost.symbols or {}).items()},
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
