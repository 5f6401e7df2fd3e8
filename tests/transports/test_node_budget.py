"""A node's own uplink-budget: kept in every round, or the run is not taken."""

from pathlib import Path
from typing import Any

import pytest
from tests.deployments import Configs, Grid, Once, deployed, failures, participants, restart_nodes

from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.records.events import read_events, read_traffic


def most_sent(folder: Path, client: int) -> int:
    """The bytes of the client's answers in the round in which they were most, joining and scores apart."""
    rounds = [event for event in read_events(folder) if event["event"] == "round"]
    return max(sum(bytes_up(event, client)) for event in rounds)


def bytes_up(event: dict[str, Any], client: int) -> list[int]:
    return [
        entry["payload_bytes"]
        for entry in read_traffic(event)
        if (entry["client"], entry["direction"], entry["purpose"]) == (client, "up", "training")
    ]


@pytest.fixture
def limited(grid: Grid) -> Grid:
    """Three nodes, of which client 1 may send 9,000 bytes a round."""
    grid.nodes[101] = {**grid.nodes[101], "uplink-budget": 9_000}
    return grid


def test_a_budget_that_cannot_be_kept_is_refused_when_the_run_is_taken(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.nodes[101] = {**grid.nodes[101], "uplink-budget": 500}
    there = deployed(grid, settings(rounds=1, refprotofl__uplink_budget="20 kB"), tmp_path / "there")
    assert failures(there.folder)[0] == (1, 1, "input")
    assert "This node's uplink-budget = 500 bytes is too small" in capsys.readouterr().out
    assert (101, "query.ask") not in grid.asked


@pytest.mark.parametrize("method", ["fedavg", "thin"])
def test_a_node_with_a_budget_takes_no_part_where_uploads_are_not_bounded(
    limited: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    there = deployed(limited, settings(rounds=1, method=method), tmp_path / "there")
    assert failures(there.folder)[0] == (1, 1, "input")
    assert "bounds no upload" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["rotated", "levels", "sparse"])
@pytest.mark.parametrize("common", [20_000, 9_000])
def test_thin_takes_shorter_codes_from_a_node_that_may_send_less(
    limited: Grid, settings: Configs, tmp_path: Path, code: str, common: int
) -> None:
    config = settings(method="thin", thin__code=code, thin__uplink_budget=common, rounds=2)
    there = deployed(limited, config, tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2]] * 2
    assert 8_950 < most_sent(there.folder, 1) <= 9_000
    assert most_sent(there.folder, 0) > common - 50


def test_what_a_client_would_send_beyond_the_budget_stays_on_the_node(
    limited: Grid,
    settings: Configs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its code forgets the prototypes that it has sent, and fills the budget once more."""
    spent = RefProtoClient.spent
    monkeypatch.setattr(
        RefProtoClient, "spent", lambda self, round: 0 if self.context.client_id == 1 else spent(self, round)
    )
    there = deployed(limited, settings(refprotofl__uplink_budget="20 kB", rounds=1), tmp_path / "there")
    assert (1, 1, "refused") in failures(there.folder)
    assert most_sent(there.folder, 1) <= 9_000
    assert "above this node's uplink-budget = 9000" in capsys.readouterr().out


def test_a_node_that_lost_its_disk_keeps_the_budget_all_the_same(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    def wipe() -> None:
        restart_nodes()
        grid.nodes[101] = {**grid.nodes[101], "store": str(tmp_path / "new-disk")}

    grid.fate = Once(101, ("ask", 2, "prototypes"), "", wipe)
    there = deployed(grid, settings(refprotofl__uplink_budget="20 kB"), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2]] * 3
    assert most_sent(there.folder, 1) <= 20_000
