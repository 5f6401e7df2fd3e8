"""What all commands share: the application, its consoles, the options that recur."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

INTERRUPTED = 130

app = typer.Typer(
    help="Federated learning over thin links: private backbones, a shared adapter, prototypes as anchors.",
    epilog="Exit codes: 0 done, 2 your input, 3 data missing or corrupt, 4 a run failed, 130 interrupted (resumable).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

File = Annotated[Path | None, typer.Argument(help="An experiment as TOML.", show_default=False)]
Preset = Annotated[str | None, typer.Option(help="quick, small, full or paper.", show_default=False)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, such as train.lr=0.05; repeatable.", show_default=False)
]
DataDir = Annotated[
    Path | None, typer.Option("--data", help="Where data sets lie; else $REFPROTOFL_DATA or the user's cache.")
]
Workers = Annotated[
    str, typer.Option(help="Processes that clients run in: a number, or auto for one on each core or GPU.")
]
Device = Annotated[
    str | None, typer.Option(help="auto, cpu, cuda or mps; auto is a GPU where there is one.", show_default=False)
]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Import the code (module:function) that the run folder names.")
]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]

out = Console()
notes = Console(stderr=True)


def show(table: Table) -> None:
    """Prints a table at its full width: a cut number is worse than a long line."""
    Console(width=max(out.width, out.measure(table, options=out.options.update(width=1000)).maximum)).print(table)


def complain(sentence: str) -> None:
    notes.print("[bold red]error:[/bold red] ", end="")
    notes.print(sentence, markup=False, highlight=False, soft_wrap=True)
