"""What every method costs, for one experiment's model and data."""

from dataclasses import dataclass
from pathlib import Path

from refprotofl.basics.parts import ADAPTER, ALL, Parts
from refprotofl.data import load_federated
from refprotofl.experiment import Experiment
from refprotofl.methods import METHODS
from refprotofl.methods.costs import evaluate, symbols
from refprotofl.methods.declaration import Cost
from refprotofl.models import build_model
from refprotofl.simulation.resolving import resolve


@dataclass(frozen=True)
class CostRow:
    """What one method shares and sends, a client and round."""

    name: str
    line: str
    share: str
    formula: Cost
    up: int
    down: int
    notes: tuple[str, ...]


def cost_rows(experiment: Experiment, data: Path | None) -> list[CostRow]:
    """Every method's cost for this experiment's model and data."""
    resolved = resolve(experiment, load_federated(experiment, data))
    rows = []
    for name, method in METHODS.items():
        shared, formula = method.shared(resolved), method.cost(resolved)
        model = build_model(resolved, method.extra_outputs(resolved))
        values = symbols(formula, resolved, sum(model.sizes(shared)))
        up, down = evaluate(formula.up, values), evaluate(formula.down, values)
        rows.append(CostRow(name, method.line, words(shared), formula, up, down, method.notes))
    return rows


def words(shared: Parts) -> str:
    """What clients share: adapter, full, nothing, or parts by name."""
    return {ALL: "full", ADAPTER: "adapter", (): "nothing"}.get(shared, ", ".join(shared))
