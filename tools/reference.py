"""Write the reference pages from the code: keys, commands, the Python API, protocols and exit codes.

python tools/reference.py [FOLDER]   (docs/reference; make docs writes them anew for the site)
"""

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import typer
from pydantic.fields import FieldInfo

import refprotofl
from refprotofl.cli.entry import app
from refprotofl.core.lazy import homes_of
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.experiment.keys import allowed, keys, known_of
from refprotofl.methods.catalogue import METHODS

SYMBOLS = (
    "P shared parameters, K parameters kept, m embedding width, C classes, N clients, D public samples. A client is "
    "assumed to hold every class. Not counted: compressors, one-time messages and evaluation. *Private*: the units of "
    "`[privacy]` that are defined."
)
NOTE = "<!-- Written by tools/reference.py from the code. -->"


def public() -> list[str]:
    """Return the names that the package offers."""
    return list(homes_of(Path(refprotofl.__file__).read_text(encoding="utf-8")))


def _cell(text: object) -> str:
    return re.sub(r"\s+", " ", str(text)).replace("\\[", "[").replace("|", "\\|").replace("<", "&lt;").strip()


def _shown(field: FieldInfo) -> str:
    """Return a key's default as it is written in a file."""
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, bool):
        return "on" if default else "off"
    if default is None or default == () or default == "" or not isinstance(default, str | int | float | tuple | list):
        return "-"
    return f"`{list(default) if isinstance(default, tuple) else default}`"


def _rows(table: dict[str, FieldInfo], prefix: str = "") -> Iterator[str]:
    yield "| key | default | values | in the hash |"
    yield "|---|---|---|---|"
    for name, field in table.items():
        enters = {"changed": "if changed", "carried": "no", "never": "no"}.get(known_of(field, "enters"), "yes")
        yield f"| `{prefix}{name}` | {_shown(field)} | {_cell(allowed(field)) or '-'} | {enters} |"


def keys_page() -> str:
    """Return the page of all configuration keys."""
    groups: dict[str, dict[str, FieldInfo]] = {}
    for name, field in keys(Experiment).items():
        groups.setdefault(name.partition(".")[0] if "." in name else "", {})[name] = field
    lines = [
        "# Keys",
        "",
        NOTE,
        "",
        "All keys of an experiment. [Configuration](../configuration.md) groups them by task.",
        "",
    ]
    lines += [
        "*In the hash*: whether a key is part of the experiment's hash, or only if changed from its default.",
        "",
    ]
    for group in sorted(groups, key=lambda group: (group in METHODS, group)):
        lines += [f"## `[{group}]`" if group else "## Top level", "", *_rows(groups[group]), ""]
    return "\n".join(lines)


def _options(command: click.Command) -> Iterator[str]:
    for one in command.params:
        help_text = _cell(getattr(one, "help", "") or "")
        if getattr(one, "hidden", False) or "--help" in one.opts:
            continue
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        if isinstance(one, click.Argument):
            names = f"`{(one.name or '').upper()}`"
        yield f"| {names} | {help_text or '-'} |"


def _described(command: click.Command, name: str, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {name}", "")
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        yield from (_cell(paragraph.replace("\b", "")), "")
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from _described(part, f"{name} {part.name}", level + 1)
    elif options := list(_options(command)):
        yield from ("| option | |", "|---|---|", *options, "")


def commands_page() -> str:
    """Return the page of all commands and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    lines = ["# Commands", "", NOTE, "", "`refprotofl COMMAND --help` prints the same.", ""]
    for command in group.commands.values():
        lines += _described(command, str(command.name), 2)
    return "\n".join(lines)


def _signature(name: str, value: object) -> str:
    try:
        parameters = inspect.signature(typing.cast(typing.Callable[..., object], value)).parameters.values()
    except (TypeError, ValueError):
        return name
    shown = [
        str(one.replace(annotation=inspect.Parameter.empty, default=one.default))
        if one.default is inspect.Parameter.empty or isinstance(one.default, str | int | float | tuple | None)
        else f"{one.name}=…"
        for one in parameters
        if one.name != "self"
    ]
    return f"{name}({', '.join(shown)})"


def _docstring(value: object) -> str:
    text = inspect.getdoc(value) or ""
    return (
        re.sub(r"(?m)^((?: {4}|>>> ).*(?:\n(?: {4}|>>> |$).*)*)", r"```pycon\n\1\n```", text) if ">>>" in text else text
    )


def _members(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(plain) and (summary := inspect.getdoc(plain)):
            shown = name if isinstance(member, property) else _signature(name, plain)
            yield f"| `.{_cell(shown)}` | {_cell(summary.partition(chr(10) * 2)[0])} |"


def python_page() -> str:
    """Return the page of the public names of the package."""
    lines = ["# Python API", "", NOTE, "", "The names that `import refprotofl as rp` offers.", ""]
    for name in sorted(public(), key=lambda name: (not name.islower(), name.lower())):
        value = getattr(refprotofl, name)
        if name.startswith("_"):
            continue
        lines += [f"## {name}", ""]
        if name == "Experiment":
            lines += [inspect.getdoc(value) or "", "", "Its arguments are the [keys](keys.md), with `_` for `-`.", ""]
        elif inspect.isclass(value) and issubclass(value, Exception):
            lines += [inspect.getdoc(value) or "", ""]
        else:
            shown = _signature(name, value)
            lines += ["```text", shown, "```", "", _docstring(value), ""]
        if inspect.isclass(value) and (members := list(_members(value))):
            lines += ["| | |", "|---|---|", *members, ""]
    return "\n".join(lines)


def methods_page() -> str:
    """Return the page of what each method shares, sends and deviates in."""
    lines = [
        "# Methods: cost and notes",
        "",
        NOTE,
        "",
        "What a client sends and receives in a round, in values, with the defaults.",
        "",
    ]
    lines += [SYMBOLS]
    lines += ["", "| method | | shares | up | down | private |", "|---|---|---|---|---|---|"]
    for name in sorted(METHODS):
        method = METHODS[name]
        own = {"method": name, "share": method.auto_share}
        experiment = Experiment.model_construct(**{**dict(Experiment()), **own})
        cost, shared = method.cost(experiment), ", ".join(method.shared(experiment)) or "nothing"
        units = [unit for unit, said in vars(method.releases(experiment)).items() if not isinstance(said, str)]
        page = f"[{name}](../{method.page.removeprefix('docs/')})"
        cells = (_cell(method.line), shared, cost.up, cost.down, ", ".join(units) or "-")
        lines.append(f"| {page} | {' | '.join(cells)} |".replace("*", "·"))
    lines += ["", "## Notes on deviations", ""]
    for name in sorted(METHODS):
        lines += [f"- `{name}`: {_cell(note)}" for note in METHODS[name].notes]
    return "\n".join(lines)


def codes_page() -> str:
    """Return the page of accuracy protocols and exit codes."""
    lines = ["# Protocols and exit codes", "", NOTE, "", "## Accuracy protocols", ""]
    lines += [
        "[Which accuracy is meant](../concepts/accuracy.md) explains them.",
        "",
        "| protocol | meaning |",
        "|---|---|",
    ]
    for name, protocol in PROTOCOLS.items():
        meaning = protocol.meaning.replace("{all}", "the whole test set").replace(
            "{own}", "test data with the client's own class mix"
        )
        lines.append(f"| `{name}` | {_cell(meaning)} |")
    lines += ["", "## Exit codes", "", "| code | error in Python | meaning |", "|---|---|---|", "| 0 | - | success |"]
    errors = [getattr(refprotofl, name) for name in public() if name.endswith("Error")]
    for error in sorted(errors, key=lambda error: (error.exit_code, error.__name__)):
        lines.append(f"| {error.exit_code} | `{error.__name__}` | {_cell(inspect.getdoc(error))} |")
    lines += ["| 130 | - | interrupted; the run can be resumed |", ""]
    return "\n".join(lines)


PAGES = {
    "keys": keys_page,
    "methods": methods_page,
    "commands": commands_page,
    "python": python_page,
    "codes": codes_page,
}


def write(folder: Path) -> None:
    """Write all reference pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        text = re.sub(r"\n{3,}", "\n\n", page()).rstrip() + "\n"
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "reference")
