"""The runs of a grid before they are run: which experiment, under which name, where.

The methods that a comparison is asked for: `refprotofl,whole = fedavg:share=full,my_module:Mine:own.trim=0.2`.

Commas are between methods and colons before switches. Both may also be part of a value: a switch begins only where a
key and `=` follow, and nothing within quotes or brackets separates. What a row is to be called stands before it.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refprotofl.core.errors import InputError
from refprotofl.core.escaping import for_file_name
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.methods.catalogue import find_method


@dataclass(frozen=True)
class Cell:
    """One method with one seed."""

    name: str  # what it is called: as it was asked for, switches included, or by a name of its own
    experiment: Experiment
    folder: Path  # where its run lies, or will
    reused: bool = False  # its run was finished before
    asked: str = ""  # the method with its switches, where the name does not say them


def plan(
    file: Path | None,
    preset: str | None,
    settings: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
) -> list[Cell]:
    """The grid's cells, seed by seed, so that an interrupted comparison is complete for its first seeds.

    A method may carry switches and a name of its own, as `choices` reads them: `whole = fedavg:share=full`.
    """
    if not methods or not seeds:
        raise InputError("A comparison needs at least one method and one seed.")
    names = [read_name(method)[0] for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or len(set(seeds)) < len(seeds):
        raise InputError(f"A method or seed is named twice: {', '.join(repeated) or list(seeds)}.")
    return [cell_of(file, preset, settings, method, seed, out) for seed in seeds for method in methods]


def cell_of(file: Path | None, preset: str | None, settings: Sequence[str], asked: str, seed: int, out: Path) -> Cell:
    """One of them; the method's own switches win over the settings."""
    name, named = read_name(asked)
    method, switches = read_switches(named)
    find_method(method)
    if any(key_of(switch) == "seed" for switch in switches):
        raise InputError(f"{name}: every row has all seeds, so none is among its switches; --seeds chooses them.")
    experiment = load_experiment(file, preset, [*settings, f'method="{method}"', f"seed={seed}", *switches])
    return Cell(name, experiment, cell_folder(out, experiment), asked="" if name == named else named)


def cell_folder(out: Path, experiment: Experiment) -> Path:
    """A folder that tells what is in it; an earlier version's is taken where it holds a finished run."""
    refuse_file(out)
    earlier = out / experiment.hash[:16]
    if (earlier / "summary.json").exists():
        return earlier
    return out / cell_name(experiment)


def refuse_file(folder: Path) -> None:
    """Where runs are to lie there is a folder or nothing yet, and nothing but folders above it."""
    there = next((path for path in (folder, *folder.parents) if os.path.exists(path)), folder)
    if os.path.isfile(there):
        raise InputError(f"{there} is a file, and runs are put into a folder: use another --out.")


def cell_name(experiment: Experiment) -> str:
    method, dataset = for_file_name(experiment.method), for_file_name(Path(experiment.dataset).stem)
    return f"{method}-{dataset}-seed{experiment.seed}-{experiment.hash[:8]}"


_QUOTED_OR_ONE = re.compile(r"""(?<!\w)"(?:\\.|[^"\\])*"|(?<!\w)'[^']*'|.""", re.DOTALL)
_COMMA = re.compile(r",")
_BEFORE_SWITCH = re.compile(r":(?=\s*[A-Za-z][\w.-]*\s*=)")


def split_list(text: str) -> list[str]:
    """Methods, each as it is asked for, switches included; or values, of which a list or a quoted text is one."""
    return [one for one in _split(text, _COMMA) if one]


def read_name(asked: str) -> tuple[str, str]:
    """What a row is called, in quotes or without, and the method with its switches, which is also what it is called."""
    before, sign, _ = _blank_nested(asked).partition("=")
    if not sign or ":" in before:  # that = belongs to a switch
        return asked, asked
    name, method = asked[: len(before)].strip(), asked[len(before) + 1 :].strip()
    if len(name) > 1 and name[0] in "\"'" and _QUOTED_OR_ONE.fullmatch(name):  # all of it in one pair of quotes
        name = name[1:-1].replace('\\"', '"').strip()
    if not name or not method:
        raise InputError(f"{asked}: a name stands before = and a method behind it, as in 'whole = fedavg:share=full'.")
    return name, method


def read_switches(name: str) -> tuple[str, list[str]]:
    """The method itself, which may be `module:Class`, and its switches `key=value`."""
    method, *switches = _split(name, _BEFORE_SWITCH)
    return method, switches


def key_of(setting: str) -> str:
    """The dotted key of `key=value`, as the documentation spells it."""
    return setting.partition("=")[0].strip().replace("_", "-")


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    visible = _blank_nested(text)
    places = [match.start() for match in separator.finditer(visible)]
    pairs = zip([-1, *places], [*places, len(text)], strict=True)
    return [text[before + 1 : after].strip() for before, after in pairs]


def _blank_nested(text: str) -> str:
    """As long as the text, without what stands in quotes or brackets."""
    visible, depth = [], 0
    for piece in _QUOTED_OR_ONE.findall(text):
        depth += piece in ("[", "{")
        visible.append("_" * len(piece) if depth or len(piece) > 1 else piece)
        depth -= depth > 0 and piece in ("]", "}")
    return "".join(visible)
