"""The command `methods`."""

from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, Preset, Settings, app
from refprotofl.cli.output import Column, explain, say, show
from refprotofl.core import for_terminal
from refprotofl.experiment import Experiment
from refprotofl.experiment.keys import allowed, keys
from refprotofl.methods import METHODS, Method, find_method
from refprotofl.privacy.interface import setting


@app.command(epilog="Example: refprotofl methods --preset paper --set share=adapter, or refprotofl methods fedprox")
def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method to describe, or an experiment as TOML.", show_default=False)
    ] = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
) -> None:
    """List all methods, what they share, and how many values a client sends and receives in a round.

    For one method: its own keys with their allowed values, and its notes.
    """
    file = Path(name) if name is not None and name.endswith(".toml") else None
    if name is not None and file is None:
        _describe(name)
    else:
        _list(file, preset, settings or [], data)


def _describe(name: str) -> None:
    for line in lines(find_method(name)):
        say(for_terminal(line))
    rows = key_rows(name)
    if rows:
        show((Column("key"), Column("default", wraps=12), Column("takes", wraps=24)), rows, framed=False)


def _list(file: Path | None, preset: str | None, settings: list[str], data: Path | None) -> None:
    from refprotofl.experiment import load_experiment
    from refprotofl.report.costs import cost_rows

    rows = cost_rows(load_experiment(file, preset, settings), data)
    sent = (Column("values up", wraps=20), Column("values down", wraps=20))
    columns = (Column("method"), Column("description", wraps=30), Column("shares", wraps=23), *sent)
    lines = [
        (row.name, row.line, row.share, _equation(row.formula.up, row.up), _equation(row.formula.down, row.down))
        for row in rows
    ]
    show(columns, lines, "Values per client and round, as a formula and for this model")
    explain(
        "P shared parameters, K parameters kept, m embedding width, C classes, N clients, D public images; "
        "clients are assumed to hold every class. Not counted: compressors (docs/methods/compressors.md), "
        "one-time messages and evaluation."
    )
    for row in rows:
        for note in row.notes:
            explain(f"{row.name}: {note}")


def _equation(formula: str, value: int) -> str:
    return formula if formula == str(value) else f"{formula} = {value:,}"


def lines(method: Method) -> list[str]:
    """Return a method's description: what it shares and sends, its privacy, notes and page."""
    own = {"method": method.name, "share": method.auto_share}
    experiment = Experiment.model_construct(**{**dict(Experiment()), **own})
    cost, shared = method.cost(experiment), ", ".join(method.shared(experiment)) or "nothing"
    shared += f' (share = "{method.auto_share}", the default)' if method.reads_share else ""
    return [
        f"{method.name}: {method.line}",
        f"shared: {shared}; values per client and round: {cost.up} up, {cost.down} down",
        *(_private(unit, said) for unit, said in vars(method.releases(experiment)).items()),
        *(f"note: {note}" for note in method.notes),
        *([f"more: {method.page}"] if method.page else []),
    ]


def _private(unit: str, said: int | str) -> str:
    return f"{setting(unit)}: " + (f"not defined, as {said}" if isinstance(said, str) else "yes")


def key_rows(name: str) -> list[tuple[str, str, str]]:
    """Return a method's own keys with their defaults and allowed values."""
    method = find_method(name)
    prefix = name if name in METHODS else "own"
    if method.table is None:
        return [(f"{prefix}.{key}", _shown(default), "") for key, default in method.defaults.items()]
    return [
        (f"{prefix}.{key}", _shown(field.get_default(call_default_factory=True)), allowed(field))
        for key, field in keys(method.table).items()
    ]


def _shown(default: object) -> str:
    if default is None:
        return "-"
    return ("on" if default else "off") if isinstance(default, bool) else str(default)
