"""The command `relay`."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import app, read_path
from refprotofl.cli.output import emit, notes, say
from refprotofl.core import counted, size

if TYPE_CHECKING:
    from refprotofl.records import Crossed


@app.command(epilog="Example: refprotofl relay --to 127.0.0.1:8443 --listen 127.0.0.1:9443 --profile lte")
def relay(
    to: Annotated[str, typer.Option(help="The server's address for nodes.", metavar="HOST:PORT")],
    listen: Annotated[
        str, typer.Option(help="The address for nodes to connect to; port 0 takes a free port.", metavar="HOST:PORT")
    ] = "127.0.0.1:0",
    profile: Annotated[
        str | None,
        typer.Option(
            help="A link shared by all connections: wifi, lte, nb-iot, lora, or up=1Mbit/s,down=5Mbit/s,latency=50ms."
        ),
    ] = None,
    cut: Annotated[
        str | None,
        typer.Option(help="Cut the link AFTER seconds from the first connection for DURATION seconds, as in 30:20."),
    ] = None,
    corrupt: Annotated[int, typer.Option(min=0, help="Flip one bit per this many bytes on average; 0 for never.")] = 0,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after this many seconds.")] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            parser=read_path,
            metavar="FILE",
            help="Write the counts to this file; RUN/wire.json adds them to the run's report.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON at the end.")] = False,
) -> None:
    """Relay the traffic between nodes and their server: count bytes, and simulate slow or faulty links.

    Ctrl-C stops it and prints the counts.
    """
    from refprotofl.deploy.relay import Address, read_address, read_cut, read_profile, run_relay

    link = read_profile(profile) if profile is not None else None
    found: list[Crossed] = []

    def ready(address: Address) -> None:
        say(f"Relaying {address} to {to}" + (f" as {profile}" if profile else ""), notes)

    async def work() -> None:
        found.append(
            await run_relay(
                read_address(listen, "--listen"),
                read_address(to, "--to"),
                link,
                ready=ready,
                cut=read_cut(cut) if cut is not None else None,
                flip_every=corrupt,
                seconds=seconds,
                counts=counts,
            )
        )

    with suppress(KeyboardInterrupt):
        asyncio.run(work())
    if found:
        _print_counts(found[0], as_json)


def _print_counts(total: "Crossed", as_json: bool) -> None:
    if as_json:
        emit(json.dumps(total) + "\n")
        return
    crossed = (
        f"{size(total['up'])} up and {size(total['down'])} down over {counted(total['connections'], 'connection')}"
    )
    say(f"{crossed}; {total['refused']} refused, {counted(total['flipped'], 'bit')} flipped")
