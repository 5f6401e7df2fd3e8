"""Which runs may stand in one table: those that differ in the method, in the seed, and in nothing else unsaid."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

from refprotofl.core.errors import InputError
from refprotofl.experiment import differences
from refprotofl.methods.catalogue import TABLES
from refprotofl.studies.results import Result

# What belongs to a method, not to the data, the model and its training.
METHOD_KEYS = {"method", "share", "compress", "own", *TABLES}

# What runs are paired by and scored on: no row's name makes these comparable.
COMMON = {
    *("dataset", "train-limit", "clients", "partition", "alpha", "min-size", "resize", "crop"),
    *("validation", "evaluate", "test"),
}

_FOLLOWS = {"input"}  # from the data, which are compared by their digest, and from other keys
_SETTLED = {"public.coverage": ("public.classes", "public.per-class")}  # what a key is spelt out as

Plain = dict[str, Any]  # an experiment's plain values


def check_comparable(results: Sequence[Result], allowed: Collection[str] = ()) -> None:
    """InputError naming what else the runs differ in than method and seed: keys, data, code, versions.

    `allowed` are dotted keys that may differ, because the rows' names say so; those of COMMON never may.
    """
    experiments = [result["summary"]["experiment"] for result in results]
    _refuse([*_other_settings(experiments, allowed), *_other_origins(results)])


def check_settings(experiments: Sequence[Plain], allowed: Collection[str] = ()) -> None:
    """The same before anything was run, as far as the experiments tell."""
    _refuse(_other_settings(experiments, allowed))


def _refuse(differing: list[str]) -> None:
    if differing:
        raise InputError(f"These runs do not go into one table: they differ in {', '.join(differing)}.")


def _other_settings(experiments: Sequence[Plain], allowed: Collection[str]) -> list[str]:
    named = {key for key in allowed if key.partition(".")[0] not in COMMON}
    settled = {key for name in named for key in _SETTLED.get(name, ())}
    ignored = {"seed", *METHOD_KEYS, *_FOLLOWS, *named, *settled}
    first, *others = [_without(_as_asked(plain), ignored) for plain in experiments] or [{}]
    return sorted(set(chain.from_iterable(differences(first, other) for other in others)))


def _as_asked(plain: Plain) -> Plain:
    """Classes that were drawn, by coverage and seed, are not what the user asked for."""
    public = plain.get("public", {})
    drawn = public.get("coverage", 1.0) < 1
    return {**plain, "public": _without(public, {"classes"})} if drawn else plain


def _without(plain: Plain, ignored: Collection[str], prefix: str = "") -> Plain:
    """Without these dotted keys, and without tables that have nothing left."""
    kept = {}
    for name, value in plain.items():
        if f"{prefix}{name}" in ignored:
            continue
        left = _without(value, ignored, f"{prefix}{name}.") if isinstance(value, dict) else value
        if left != {}:
            kept[name] = left
    return kept


def _other_origins(results: Sequence[Result]) -> Iterator[str]:
    """What is not on record does not count."""
    origins = [result["origin"] for result in results if result["origin"] is not None]
    if len({origin["data"] for origin in origins} - {None}) > 1:
        yield "the data that they were run on"
    for name in sorted({name for origin in origins for name in origin["code"]}):
        if len({origin["code"][name] for origin in origins if name in origin["code"]}) > 1:
            yield f"the code of {name}"
    if len({origin["results"] for origin in origins}) > 1:
        yield "the numbers that their versions of refprotofl compute"
