"""The application and the options that commands share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from typer.core import TyperGroup

from refprotofl.cli.output import complain
from refprotofl.core import InputError, read_whole

if TYPE_CHECKING:
    from refprotofl.federation import Workers as Count

INTERRUPTED = 130
NOTHING_KEPT = "Interrupted before the run started; nothing was written."


class Group(TyperGroup):
    """Commands of which Click alone suggests the nearest one: Typer would suggest it a second time."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        self.suggest_commands = False
        return super().resolve_command(ctx, args)


class Commands(Group):
    """The commands; `reproduce FILE.toml` is the one in that study file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Replace a study file by the command in it."""
        if args[0] == "reproduce" and len(args) > 1 and args[1].endswith(".toml"):
            from refprotofl.cli.study_files import expand_study

            args = expand_study(read_path(args[1]), args[2:], self.commands)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="Federated learning over thin links: private backbones, a shared adapter, prototypes as anchors.",
    epilog="Exit codes: 0 success, 2 invalid input, 3 missing or corrupt data, 4 failed run, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@contextmanager
def nothing_kept_yet() -> Iterator[None]:
    """Report an interrupt during the imports at the start of a command."""
    try:
        yield
    except KeyboardInterrupt:
        complain(NOTHING_KEPT)
        raise typer.Exit(INTERRUPTED) from None


def limit_kernels(file: Path | None, settings: list[str] | None) -> None:
    """Apply the experiment's numerics before torch is imported."""
    from refprotofl.core import numerics
    from refprotofl.experiment import asked_numerics

    numerics.apply(asked_numerics(file, settings or ()))


def read_path(text: str) -> Path:
    """Expand ~ in a path, also where a shell does not: in --out=~/runs."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{text}: unknown home folder. Give the full path.") from None


MOST_SEEDS = 10_000


def read_seeds(text: str) -> list[int]:
    """Return the seeds of a text such as 3, 0,1,2 or 0-4,7; both ends of a range belong to it."""
    seeds: list[int] = []
    for part in filter(None, map(str.strip, text.split(","))):
        ends = [read_whole(end.strip()) for end in part.split("-")]
        first, last = ends[0], ends[-1]
        if len(ends) > 2 or first is None or last is None:
            raise InputError(f"--seeds {text}: expected whole numbers separated by commas, or a range: 0,1,2 or 0-4.")
        if last < first or last - first >= MOST_SEEDS:
            raise InputError(f"--seeds {text}: {part} is not a range of 1 to {MOST_SEEDS:,} seeds from low to high.")
        seeds += range(first, last + 1)
    if not seeds:
        raise InputError(f"--seeds {text}: expected whole numbers separated by commas, or a range: 0,1,2 or 0-4.")
    return seeds


def read_workers(text: str) -> "Count":
    if text == "auto":
        return "auto"
    number = read_whole(text)
    if not number:
        raise InputError(f"--workers {text}: expected auto or a whole number of at least 1.")
    return number


def with_seed(settings: list[str] | None, seed: int | None) -> list[str]:
    """Return the settings with --seed, which overrides them."""
    return [*(settings or []), *([] if seed is None else [f"seed={seed}"])]


def with_device(settings: list[str], device: str | None) -> list[str]:
    """Return the settings with --device, which overrides them."""
    return settings if device is None else [*settings, f"device={device}"]


File = Annotated[
    Path | None, typer.Argument(help="An experiment as TOML.", parser=read_path, metavar="[FILE]", show_default=False)
]
Preset = Annotated[str | None, typer.Option(help="quick, small, full or paper.", show_default=False)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, such as train.lr=0.05; repeatable.", show_default=False)
]
Seed = Annotated[int | None, typer.Option(min=0, help="The seed, as --set seed=N.", show_default=False)]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data",
        parser=read_path,
        metavar="DIR",
        help="The folder of data sets (default: $REFPROTOFL_DATA or the user's cache).",
    ),
]
Workers = Annotated[str, typer.Option(help="Number of processes for clients, or auto for one per core or GPU.")]
Device = Annotated[
    str | None, typer.Option(help="auto, cpu, cuda or mps; auto takes a GPU if there is one.", show_default=False)
]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Import the code (module:function) that the run folder names.")
]
RunFolder = Annotated[
    Path, typer.Argument(help="A run folder.", parser=read_path, metavar="RUN_FOLDER", show_default=False)
]
