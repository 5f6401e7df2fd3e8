"""Comparable runs: they differ in the method, the seed and the keys that their rows name, and in nothing else."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from refprotofl.core import InputError, RefProtoFLError
from refprotofl.experiment import Experiment, differences
from refprotofl.federation import changed_since
from refprotofl.methods import TABLES, find_method
from refprotofl.records import Summary, read_json, read_summary
from refprotofl.studies import Result

# Keys of a method, in contrast to those of the data, the model and its training.
METHOD_KEYS = {"method", "share", "compress", "own", *TABLES}

# Keys that runs are paired by and scored on: they must be equal even if rows name them.
COMMON = {
    *(
        "dataset",
        "train-limit",
        "clients",
        "partition",
        "alpha",
        "classes-per-client",
        "shift",
        "min-size",
        "resize",
        "crop",
    ),
    *("validation", "evaluate", "test"),
}

_FOLLOWS = {"input"}  # follows from other keys and from the data, which are compared by their digest
_SETTLED = {"public.coverage": ("public.classes", "public.per-class")}  # keys that resolving sets from another

Plain = dict[str, Any]  # an experiment's plain values


def check_comparable(results: Sequence[Result], allowed: Collection[str] = ()) -> None:
    """InputError if runs differ in more than method and seed: in keys, data, code or versions.

    `allowed` are dotted keys that may differ because the rows name them; those of COMMON never may.
    """
    experiments = [result["summary"]["experiment"] for result in results]
    _refuse([*_other_settings(experiments, allowed), *_other_origins(results)])


def check_settings(experiments: Sequence[Plain], allowed: Collection[str] = ()) -> None:
    """The same check before any run, on experiments alone."""
    _refuse(_other_settings(experiments, allowed))


def _refuse(differing: list[str]) -> None:
    if differing:
        raise InputError(f"These runs are not comparable: they differ in {', '.join(differing)}.")


def _other_settings(experiments: Sequence[Plain], allowed: Collection[str]) -> list[str]:
    named = {key for key in allowed if key.partition(".")[0] not in COMMON}
    settled = {key for name in named for key in _SETTLED.get(name, ())}
    ignored = {"seed", *METHOD_KEYS, *_FOLLOWS, *named, *settled}
    first, *others = [_without(_as_asked(plain), ignored) for plain in experiments] or [{}]
    return sorted(set(chain.from_iterable(differences(first, other) for other in others)))


def _as_asked(plain: Plain) -> Plain:
    """Return the experiment without public classes that were drawn from the coverage and seed."""
    public = plain.get("public", {})
    drawn = public.get("coverage", 1.0) < 1
    return {**plain, "public": _without(public, {"classes"})} if drawn else plain


def _without(plain: Plain, ignored: Collection[str], prefix: str = "") -> Plain:
    """Return the experiment without these dotted keys, and without tables that are empty then."""
    kept = {}
    for name, value in plain.items():
        if f"{prefix}{name}" in ignored:
            continue
        left = _without(value, ignored, f"{prefix}{name}.") if isinstance(value, dict) else value
        if left != {}:
            kept[name] = left
    return kept


def _other_origins(results: Sequence[Result]) -> Iterator[str]:
    """Yield differences of data, code and versions; unrecorded ones are ignored."""
    origins = [result["origin"] for result in results if result["origin"] is not None]
    if len({origin["data"] for origin in origins} - {None}) > 1:
        yield "their data"
    for name in sorted({name for origin in origins for name in origin["code"]}):
        if len({origin["code"][name] for origin in origins if name in origin["code"]}) > 1:
            yield f"the code of {name}"
    if len({origin["results"] for origin in origins}) > 1:
        yield "their version of refprotofl, which computes other numbers"


def baseline_of(experiment: Experiment, method: str) -> Experiment:
    """Return the same experiment with another method and that method's defaults."""
    find_method(method)
    kept = {name: value for name, value in experiment.plain().items() if name not in METHOD_KEYS}
    return Experiment.parse({**kept, "method": method})


def finished_run(place: Path, experiment: Experiment, data: Path | None = None) -> Summary | None:
    """Return the summary of a finished run of this resolved experiment in a folder of `place`, if there is one.

    Runs whose data or code changed since are ignored.
    """
    for file in sorted(place.glob("*/experiment.json")):
        try:
            stored = read_json(file).get("hash")
            if stored == experiment.hash and not changed_since(file.parent, experiment, data):
                return read_summary(file.parent / "summary.json")
        except (OSError, ValueError, AttributeError, RefProtoFLError):
            continue  # not a run folder, or an unfinished or damaged one
    return None
