"""The bytes that really cross, counted by a relay: nodes pay for their payload, and little else."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deployments import CLIENTS, Configs
from tests.edge.site import PATIENCE, Site, wait_for
from tests.edge.test_real_deployment import finish
from tests.flower.breaking import Link

from refprotofl.records.events import read_events, read_traffic

KEEP_ALIVE, DEFAULT = 5, 60  # seconds: of the nodes here, and unless they say otherwise
ROUNDS = 3, 8
SETTLED = 2.0  # seconds after which nothing is under way any more


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, apart: Path) -> Iterator[Site]:
    """All nodes are connected through one relay."""
    site = Site(tmp_path_factory.mktemp("bytes") / "site")
    site.begin()
    link = site.link = Link(site.made.keys.port)
    try:
        for number in range(CLIENTS):
            config = site.made.kit(number) / "node.toml"
            text = config.read_text().replace(f":{site.made.keys.port}", f":{link.port}")
            config.write_text(f"{text}keep-alive = {KEEP_ALIVE}\n")
            site.join(number, apart / f"client-{number}.npz")
        for number in range(CLIENTS):
            wait_for(lambda name=f"node-{number}": site.is_online(name), PATIENCE, site.log)  # type: ignore[misc]
        yield site
    finally:
        site.close()
        link.close()


def wire(site: Site) -> dict[str, int]:
    """Return the bytes that have crossed so far, when nothing is under way."""
    time.sleep(SETTLED)
    counts = site.link.counts
    return {"up": counts["up"], "down": counts["down"]}


def payload(out: Path, rounds: range) -> dict[str, int]:
    found = {"up": 0, "down": 0}
    for event in read_events(out):
        if event["event"] == "round" and event["round"] in rounds:
            for row in read_traffic(event):
                found[row["direction"]] += row["payload_bytes"]
    return found


def crossed(site: Site, config: dict[str, Any], out: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes of a whole run on the wire and in its messages."""
    before = wire(site)
    site.submit(config | {"out": str(out)})
    finish(site, out)
    wait_for(lambda: site.last_run().finished, PATIENCE, site.log)
    after, sent = wire(site), payload(out, range(1, 100))
    return {way: after[way] - before[way] for way in after}, sent


def test_connections_pauses_and_rounds_cost_little_beyond_the_payload(
    site: Site, settings: Configs, tmp_path: Path
) -> None:
    connected = wire(site)
    assert sum(connected.values()) / CLIENTS < 5_000

    time.sleep(2 * KEEP_ALIVE)
    begun, before = time.monotonic(), wire(site)
    time.sleep(4 * KEEP_ALIVE)
    after, seconds = wire(site), time.monotonic() - begun
    idle = {way: (after[way] - before[way]) / seconds / CLIENTS * KEEP_ALIVE / DEFAULT for way in after}
    assert all(one <= 2 for one in idle.values())

    runs = [crossed(site, settings(rounds=rounds, evaluate__every=99), tmp_path / f"{rounds}") for rounds in ROUNDS]
    over = (ROUNDS[1] - ROUNDS[0]) * CLIENTS
    per_round = {way: (runs[1][0][way] - runs[0][0][way]) / over for way in ("up", "down")}
    of_payload = {way: (runs[1][1][way] - runs[0][1][way]) / over for way in ("up", "down")}
    for name, figures in {
        "set-up": {way: count / CLIENTS for way, count in connected.items()},
        "idle": idle,
        "wire": per_round,
        "payload": of_payload,
    }.items():
        print(name, {way: round(one, 1) for way, one in figures.items()})
    for way in ("up", "down"):
        assert per_round[way] - of_payload[way] <= 300 + 0.02 * of_payload[way]
