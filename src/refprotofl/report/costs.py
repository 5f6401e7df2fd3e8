"""The communication cost of methods: the values of their formulas for one experiment's model and data."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from refprotofl.core import ADAPTER, ALL, WITHOUT_NORMS, Parts
from refprotofl.data import load_federated
from refprotofl.experiment import Experiment
from refprotofl.federation import resolve
from refprotofl.methods import METHODS, Cost, find_method
from refprotofl.models import build_model

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def symbols(cost: Cost, experiment: Experiment, shared: int) -> dict[str, int]:
    """Return the values of the formulas' symbols, with `shared` parameters shared."""
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
    """Evaluate a formula of sums and products."""
    return _value(ast.parse(formula, mode="eval").body, symbols)


def _value(node: ast.expr, symbols: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_value(node.left, symbols), _value(node.right, symbols))
    raise ValueError(f"{ast.unparse(node)} is neither a number, a symbol, a sum nor a product")


@dataclass(frozen=True)
class CostRow:
    """The values that a client shares and sends in a round of one method."""

    name: str
    line: str
    share: str
    formula: Cost
    up: int
    down: int
    notes: tuple[str, ...]


def cost_rows(experiment: Experiment, data: Path | None) -> list[CostRow]:
    """Return the cost of every method for this experiment's model and data."""
    resolved = resolve(experiment, load_federated(experiment, data))
    rows = []
    for name, method in METHODS.items():
        share = resolved.share if "share" in resolved.model_fields_set else method.auto_share
        own = resolved.model_copy(update={"share": share})
        shared, formula = method.shared(own), method.cost(own)
        model = build_model(own, method.extra_outputs(own))
        values = symbols(formula, own, sum(model.sizes(shared)))
        up, down = evaluate(formula.up, values), evaluate(formula.down, values)
        rows.append(CostRow(name, method.line, words(shared), formula, up, down, method.notes))
    return rows


def shared_by(experiment: Experiment) -> str:
    """Return the parts that clients share, for a sentence: the whole model, the adapter, nothing, or names."""
    shared = words(find_method(experiment.method).shared(experiment))
    return {"full": "the whole model", "adapter": "the adapter"}.get(shared, shared)


def words(shared: Parts) -> str:
    """Return the shared parts in words: adapter, full, nothing, or names."""
    return {ALL: "full", ADAPTER: "adapter", WITHOUT_NORMS: "all but norm layers", (): "nothing"}.get(
        shared, ", ".join(shared)
    )
