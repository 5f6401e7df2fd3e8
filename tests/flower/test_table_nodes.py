"""Three nodes with a CSV each, their columns in another order: the same run as on one table with all clients."""

from pathlib import Path
from typing import Any

import pytest
from tests.deployments import CLIENTS, FIRST, deployed, simulated
from tests.flower.inmemory import MemoryGrid

SITES = ("basel", "bern", "chur")


def rows(count: int, offset: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "age": 40 + (number * 7 + offset) % 13,
            "pulse": number % 2 + (number + offset) / 300,
            "sick": ("no", "yes")[number % 2],
            "side": "test" if number % 10 > 7 else "train",
            "site": SITES[number % 3],
        }
        for number in range(count)
    ]


def write(path: Path, table: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in table)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    apart = ("age", "pulse", "sick")
    return {
        "preset": "quick",
        "rounds": 2,
        "evaluate.every": 1,
        "public.dataset": write(tmp_path / "public.csv", rows(20, 1000), apart),
        "test.dataset": write(tmp_path / "test.csv", rows(30, 2000), apart),
        "data.label": "sick",
        "data.split": "side",
    }


def test_nodes_with_tables_end_as_the_simulation_of_all_rows_does(tmp_path: Path, config: dict[str, Any]) -> None:
    table = rows(120)
    whole = write(tmp_path / "whole.csv", table, ("age", "pulse", "sick", "side", "site"))
    orders = (("age", "pulse", "sick", "side"), ("sick", "pulse", "side", "age"), ("side", "sick", "age", "pulse"))
    nodes = {}
    for number, names in enumerate(orders):
        own = [row for row in table if row["site"] == SITES[number]]
        path = write(tmp_path / f"node-{number}.csv", own, names)
        nodes[FIRST + number] = {
            "data-path": path,
            "store": str(tmp_path / f"store-{number}"),
            "name": f"node-{number}",
        }
    of_nodes = deployed(MemoryGrid(nodes), {**config, "clients": CLIENTS}, tmp_path / "deployed")
    of_all = simulated({**config, "dataset": whole, "data.client": "site"}, tmp_path / "simulated")
    assert of_nodes.summary["rounds_done"] == 2
    assert of_nodes.summary["state_digest"] == of_all.summary["state_digest"]
