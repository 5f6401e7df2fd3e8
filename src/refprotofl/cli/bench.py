"""Measurements: `bench wire`."""

from typing import Annotated

import typer
from rich.table import Table

from refprotofl.cli.app import DataDir, File, Preset, Settings, app, show

bench_app = typer.Typer(
    no_args_is_help=True,
    help="Measurements that you can repeat on your machine.",
    epilog="Example: refprotofl bench wire",
)
app.add_typer(bench_app, name="bench")


@bench_app.callback()
def bench() -> None:
    """Measurements that you can repeat on your machine."""


@bench_app.command("wire", epilog="Example: refprotofl bench wire --preset small --set dataset=fashion-mnist")
def bench_wire(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds trained before the real masks are taken.")] = 3,
) -> None:
    """Bytes of the mask code beside the entropy bound, on uniform masks and on those of a real run."""
    from refprotofl.benchmarks.masks import masks_of_run
    from refprotofl.benchmarks.wire import code_table, uniform_masks
    from refprotofl.presets import load_experiment

    experiment = load_experiment(file, preset, settings or ())
    table = Table(title="Index code: bytes against log2 C(d, K) / 8", title_justify="left")
    for heading in ("mask", "d", "K", "bound", "ours", "ratio", "bitmap", "uint32", "encode ms", "decode ms", "code"):
        table.add_column(heading, justify="left" if heading in ("mask", "code") else "right")
    for row in code_table(uniform_masks() | masks_of_run(experiment, data, rounds)):
        counts = (row.size, row.marked, round(row.bound_bytes), row.code_bytes)
        times = (f"{row.encode_ms:.1f}", f"{row.decode_ms:.1f}")
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        plain = (str(row.bitmap_bytes), str(row.uint32_bytes))
        table.add_row(row.name, *map(str, counts), ratio, *plain, *times, row.variant)
    show(table)
