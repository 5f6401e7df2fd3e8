"""The counts of a relay in the folder of a run."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from refprotofl import Experiment
from refprotofl.core.errors import InputError, MachineError
from refprotofl.deploy import relay
from refprotofl.deploy.relay import Address, run_relay
from refprotofl.federation import run
from refprotofl.records.folder import RunFolder
from refprotofl.records.relay_traffic import FILE, read_crossed

HERE = Address("127.0.0.1", 0)


def relay_for(counts: Path, seconds: float = 0.2) -> None:
    asyncio.run(run_relay(HERE, HERE, None, ready=lambda address: None, seconds=seconds, counts=counts))


def test_a_run_begins_in_the_folder_that_a_relay_counts_in(tmp_path: Path) -> None:
    """The relay starts first, creates the folder, and continues counting during the run."""
    folder = tmp_path / "runs" / "a"
    relay_for(folder / FILE)
    run(
        Experiment(dataset="digits", rounds=1, min_size=10, clients=2, model={"name": "mlp"}, public={"per-class": 5}),
        out=folder,
    )
    relay_for(folder / FILE)
    counted = read_crossed(folder)
    assert counted is not None
    assert counted["up"] == 0


def test_any_other_file_next_to_the_counts_keeps_a_run_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{}")
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"is not empty and holds no run \(thesis\.tex"):
        RunFolder(tmp_path).open(resume=False)


def test_a_count_that_cannot_be_written_for_a_moment_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "EVERY", 0.02)
    folder, away = tmp_path / "a", tmp_path / "away"

    async def go_away(address: Address) -> None:
        await asyncio.sleep(0.1)
        folder.rename(away)
        await asyncio.sleep(0.1)
        away.rename(folder)
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.close()

    async def both() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            to = Address(*server.getsockname())
            tasks: list[asyncio.Task[None]] = []
            await run_relay(
                HERE,
                to,
                None,
                ready=lambda address: tasks.append(asyncio.create_task(go_away(address))),
                seconds=1.0,
                counts=folder / FILE,
            )
            await asyncio.gather(*tasks)

    asyncio.run(both())
    assert json.loads((folder / FILE).read_text())["connections"] == 1


def test_counts_that_cannot_be_written_at_all_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(MachineError, match="Cannot write"):
        relay_for(tmp_path / FILE)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot use"):
        relay_for(tmp_path / "file" / FILE)
