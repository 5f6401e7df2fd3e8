"""The table of attacks against defences, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from refprotofl.attacks.kinds import KINDS
from refprotofl.attacks.study.results import Fared
from refprotofl.basics.units import counted
from refprotofl.report.formats import with_interval
from refprotofl.report.statistics import Estimate
from refprotofl.report.tables import Entry, Table


def tabulated(fared: Sequence[Fared], fraction: float, title: str) -> Table:
    """A row for each method and attack, a column for each defence; under a backdoor how often it opens."""
    methods, attacks, defences = (
        list(dict.fromkeys(getattr(one.place, name) for one in fared)) for name in ("method", "attack", "defence")
    )
    several = len(methods) > 1
    rows = []
    for method in methods:
        for attack in attacks:
            line = [one for one in fared if (one.place.method, one.place.attack) == (method, attack)]
            names = [method] * several
            rows.append(_row([*names, attack], [_accuracy(one) for one in line]))
            if any(one.backdoor for one in line):
                rows.append(_row([*names, f"{attack}: success"], [with_interval(one.backdoor) for one in line]))
    return Table(
        name="attack",
        title=title,
        headings=(*["method"] * several, "attack", *defences),
        rows=tuple(rows),
        records=tuple(_record(one) for one in fared),
        notes=_notes(fared),
        left=1 + several,
        about={"fraction": fraction, "by_seed": [_by_seed(one) for one in fared]},
    )


def _notes(fared: Sequence[Fared]) -> tuple[str, ...]:
    lines = ["accuracy: personal, mean over the honest clients, after the last round"]
    if any(one.backdoor for one in fared):
        lines.append("success: share of triggered images of other classes that honest clients take for the target")
    kinds = dict.fromkeys(one.place.kind for one in fared)
    return (*lines, *(f"{kind}: {KINDS[kind].line}" for kind in kinds if kind in KINDS))


def _row(names: Sequence[str], cells: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(Entry(text) for text in (*names, *cells))


def _accuracy(one: Fared) -> str:
    if one.accuracy is None:
        return "failed"
    return with_interval(one.accuracy) + (f" ({counted(len(one.failed), 'run')} failed)" if one.failed else "")


def _record(one: Fared) -> dict[str, Any]:
    return {
        "method": one.place.method,
        "attack": one.place.attack,
        "defence": one.place.defence,
        "seeds": len(one.outcomes),
        "failed": len(one.failed),
        **_numbers("accuracy", one.accuracy),
        **_numbers("backdoor", one.backdoor),
    }


def _numbers(name: str, found: Estimate | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_half_width": None}
    return {name: found.mean, f"{name}_half_width": found.half_width}


def _by_seed(one: Fared) -> dict[str, Any]:
    seeds = {
        str(run.seed): {"accuracy": run.accuracy, "backdoor": run.backdoor, "run": str(run.folder)}
        for run in one.outcomes
    }
    place = {"method": one.place.method, "attack": one.place.attack, "defence": one.place.defence}
    return {**place, "seeds": seeds, "failed": list(one.failed)}
