"""The command `relay`."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import app, read_path
from refprotofl.cli.output import emit, notes, say
from refprotofl.core.units import counted, size


@app.command(epilog="Example: refprotofl relay --to 127.0.0.1:8443 --listen 127.0.0.1:9443 --profile lte")
def relay(
    to: Annotated[str, typer.Option(help="Where it leads, such as the SuperLink's port.", metavar="HOST:PORT")],
    listen: Annotated[
        str, typer.Option(help="Where nodes connect to instead; port 0 takes a free one.", metavar="HOST:PORT")
    ] = "127.0.0.1:0",
    profile: Annotated[
        str | None,
        typer.Option(help="A link: wifi, lte, nb-iot, lora, or 'up=1Mbit/s,down=5Mbit/s,latency=50ms'. All share it."),
    ] = None,
    cut: Annotated[
        str | None, typer.Option(help="Cut the link: so many seconds after the first connection, for so many: 30:20.")
    ] = None,
    corrupt: Annotated[
        int, typer.Option(min=0, help="Turn a bit over once in so many bytes on average; 0 for never.")
    ] = 0,
    seconds: Annotated[float | None, typer.Option(min=0, help="End by itself after so long.")] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            parser=read_path,
            metavar="FILE",
            help="Keep the counts in this file: RUN/wire.json, before the run or later, for the run's report.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON at the end.")] = False,
) -> None:
    """Stand between nodes and their server: count what really crosses, and be as slow or broken as a link can be.

    Ctrl-C ends it, and it tells what crossed.
    """
    from refprotofl.deploy.relay import Address, read_address, read_cut, read_profile, run_relay
    from refprotofl.records.relay_traffic import Crossed

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
    if not found:
        return
    (told,) = found
    if as_json:
        emit(json.dumps(told) + "\n")
    else:
        crossed = (
            f"{size(told['up'])} up and {size(told['down'])} down over {counted(told['connections'], 'connection')}"
        )
        say(f"{crossed}; {told['refused']} refused, {counted(told['flipped'], 'bit')} turned over")
