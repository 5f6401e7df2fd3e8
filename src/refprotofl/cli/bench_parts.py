"""Measurements of single parts: `bench aggregate`, `bench kernels`."""

from typing import Annotated

import typer

from refprotofl.cli.bench import AsJson, Repeats, bench_app, present, tell


@bench_app.command("aggregate", epilog="Example: refprotofl bench aggregate --uploads 1000 --keep 0.1")
def bench_aggregate(
    uploads: Annotated[int, typer.Option(min=1, help="Clients that upload in the round.")] = 1000,
    size: Annotated[int, typer.Option(min=1, help="Parameters of the adapter.")] = 267_786,
    keep: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of them that is sent.")] = 0.1,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Time and memory that the masked uploads of a round take at the server, on one core."""
    from refprotofl.benchmarks.aggregation import measure_aggregation

    present(measure_aggregation(uploads, size, keep, repeats, tell), as_json)


@bench_app.command("kernels", epilog="Example: refprotofl bench kernels --repeats 15")
def bench_kernels(repeats: Repeats = 15, as_json: AsJson = False) -> None:
    """How much faster model.kernel = "fast" is than "plain", and than eager PyTorch, for each model."""
    from refprotofl.benchmarks.kernels import measure_kernels

    present(measure_kernels(repeats=repeats, tell=tell), as_json)
