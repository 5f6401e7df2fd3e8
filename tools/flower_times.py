"""The time that Flower costs, next to the same experiment in one process, both measured in turn.

    python tools/flower_times.py nodes            # three nodes over TLS, each in one process
    python tools/flower_times.py simulation       # Ray, with 10 and with 100 clients

It runs in a checkout that has the extra flower and Ray (`make test-flower` installs both), starts what the tests of a
real deployment start, ends by itself, and prints lines of JSON. Arguments after the first are settings, as `rounds=5`.
"""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.flower.breaking import cpu_seconds  # noqa: E402
from tests.flower.loopback import BIN, Loopback  # noqa: E402
from tests.flower.site import Site  # noqa: E402

from refprotofl.deploy.server_process import process_of  # noqa: E402
from refprotofl.records.events import read_traffic  # noqa: E402

NODES = 3
TURNS = 2  # of everything, one after the other
PATIENCE = 1800.0  # seconds
RAY = "num-supernodes=2 client-resources-num-cpus=1 init-args-num-cpus=2"


def settings(asked: list[str], **own: Any) -> dict[str, Any]:
    """Return the settings of an experiment that is evaluated once: `evaluate.every` exceeds its rounds."""
    found: dict[str, Any] = {"preset": "quick", "rounds": 5, "evaluate.every": 1000, **own}
    for one in asked:
        name, _, text = one.partition("=")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def as_options(found: dict[str, Any]) -> list[str]:
    """For our own commands."""
    keys = [word for name, value in found.items() if name != "preset" for word in ("--set", f"{name}={value}")]
    return ["--preset", found["preset"], *keys]


def in_process(found: dict[str, Any], out: Path) -> float:
    """Seconds from the command to its end."""
    command = [str(BIN / "refprotofl"), "run", *as_options(found), "--out", str(out)]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - started


def wait_for(out: Path, describe: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not (out / "summary.json").exists():
        if time.monotonic() > until:
            raise SystemExit(describe())
        time.sleep(0.1)


def events_of(out: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "round"]


def rounds_of(out: Path) -> list[float]:
    """Seconds of the rounds after the first, in which everyone joins."""
    return [event["seconds"] for event in events_of(out)][1:]


def answers_in(out: Path) -> int:
    """The number of messages that the nodes answered; greetings and the experiment apart."""
    return sum(row["direction"] == "up" for event in events_of(out) for row in read_traffic(event))


def report(what: str, outs: list[Path], found: dict[str, Any], **more: Any) -> None:
    seconds = [one for out in outs for one in rounds_of(out)]
    digests = {json.loads((out / "summary.json").read_text())["state_digest"] for out in outs}
    row = {
        "what": what,
        "clients": found["clients"],
        "seconds_a_round": round(statistics.median(seconds), 3),
        "from": round(min(seconds), 3),
        "to": round(max(seconds), 3),
        **more,
        "digests": sorted(digests),
    }
    print(json.dumps(row), flush=True)


def deploy(folder: Path, files: Path) -> Site:
    site = Site(folder)
    site.begin()
    for number in range(NODES):
        site.join(number, files / f"client-{number}.npz")
    return site


def used(site: Site) -> dict[str, float]:
    """CPU seconds so far, of the nodes together and of the server."""
    server = process_of(site.made)
    return {
        "nodes": sum(cpu_seconds(site.node_process(number)) for number in range(NODES)),
        "server": cpu_seconds(server) if server is not None else 0.0,
    }


def nodes(asked: list[str], folder: Path) -> None:
    """CPU seconds per message are of all that a message takes: training, TLS, looking for work meanwhile."""
    found = settings(asked, clients=NODES)
    files = folder / "files"
    exporting = [str(BIN / "refprotofl"), "partition", *as_options(found), "--export", str(files)]
    subprocess.run(exporting, check=True, capture_output=True)
    apart = {f"{name}.dataset": str(files / f"{name}.npz") for name in ("public", "test")}
    outs: dict[str, list[Path]] = {"in one process": [], "three nodes": []}
    spent = {"nodes": 0.0, "server": 0.0}
    site = deploy(folder / "site", files)
    try:
        for turn in range(TURNS):
            for what, finished in outs.items():
                out = folder / f"{what} {turn}"
                if what == "three nodes":
                    before = used(site)
                    site.submit({**found, **apart, "out": str(out)})
                    wait_for(out, site.log)
                    spent = {name: spent[name] + both - before[name] for name, both in used(site).items()}
                else:
                    in_process(found, out)
                finished.append(out)
    finally:
        site.close()
    report("in one process", outs["in one process"], found)
    messages = sum(answers_in(out) for out in outs["three nodes"])
    cpu = {f"{name}_cpu_seconds_per_message": round(all / messages, 3) for name, all in spent.items()}
    report("three nodes", outs["three nodes"], found, messages=messages, **cpu)


def simulation(asked: list[str], folder: Path) -> None:
    flower = Loopback(folder / "flower")
    flower.start_superlink()
    try:
        for clients in (10, 100):
            found = settings(asked, clients=clients)
            outs: dict[str, list[Path]] = {"in one process": [], "Ray": []}
            whole: dict[str, list[float]] = {"in one process": [], "Ray": []}
            for turn in range(TURNS):
                for what, finished in outs.items():
                    out = folder / f"{what} {clients} {turn}"
                    started = time.monotonic()
                    if what == "Ray":
                        flower.submit({**found, "out": str(out)}, RAY)
                        wait_for(out, lambda: flower.log("superlink")[-5000:])
                    else:
                        in_process(found, out)
                    whole[what].append(time.monotonic() - started)
                    finished.append(out)
            for what, finished in outs.items():
                besides = [all - sum(rounds_of(out)) for all, out in zip(whole[what], finished, strict=True)]
                report(what, finished, found, seconds_besides=round(statistics.median(besides), 1))
    finally:
        flower.close()


def main() -> None:
    kinds = {"nodes": nodes, "simulation": simulation}
    if len(sys.argv) < 2 or sys.argv[1] not in kinds:
        raise SystemExit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with tempfile.TemporaryDirectory() as place:
        kinds[sys.argv[1]](sys.argv[2:], Path(place))


if __name__ == "__main__":
    main()
