"""`Client.fit` is the only way in which a method's client trains, and [train] is read in one place."""

import ast
from pathlib import Path

import pytest

import refprotofl
from refprotofl.experiment.sections import Train

METHODS = Path(refprotofl.__file__).parent / "methods"
SERVERS = {"builtin/centralised/centralised.py", "builtin/thin/server.py"}  # their servers train a whole model


def imported(path: Path) -> set[str]:
    """Return the names that a file imports from the methods' package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in found if "refprotofl.methods" in str(node.module) for alias in node.names}


def test_no_method_trains_a_client_but_through_fit() -> None:
    files = [path for folder in ("builtin", "common") for path in sorted((METHODS / folder).rglob("*.py"))]
    looped = {path.relative_to(METHODS).as_posix() for path in files if "train" in imported(path)}
    assert looped == SERVERS
    assert not any({"FreshSgd", "create_optimiser"} & imported(path) for path in files)


def test_a_method_replaces_passes_and_rate_and_nothing_else() -> None:
    table = Train(local_epochs=3, batch_size=16, lr=0.1, momentum=0.5, weight_decay=0.0)
    assert table.in_round(4, 5) == table
    assert table.in_round(4, 5, epochs=2) == table.model_copy(update={"local_epochs": 2})
    assert table.in_round(4, 5, lr=0.02) == table.model_copy(update={"lr": 0.02})


def test_steps_replace_passes_but_not_those_of_the_methods_own() -> None:
    table = Train(local_steps=7, batch_size=16)
    assert [table.steps(samples) for samples in (1, 16, 1000)] == [7, 7, 7]
    assert table.passes == 0
    own = table.in_round(1, 5, epochs=2)
    assert (own.passes, own.steps(33)) == (2, 6)


@pytest.mark.parametrize(("samples", "batches"), [(1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_steps_count_the_last_incomplete_batch(samples: int, batches: int) -> None:
    table = Train(local_epochs=3, batch_size=16)
    assert (table.steps_per_epoch(samples), table.steps(samples)) == (batches, 3 * batches)
