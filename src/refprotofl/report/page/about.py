"""What was run: experiment, protocols, machine, what the numbers come from."""

from collections.abc import Mapping
from typing import Any

from refprotofl.core.errors import RefProtoFLError
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.methods.catalogue import METHODS
from refprotofl.methods.compressors import built_in_compressor
from refprotofl.records.manifest import read_manifest
from refprotofl.records.safe_io import CHECKPOINT
from refprotofl.report.page.elements import Facts, Section, Table, shown, words
from refprotofl.report.page.sources import RunTold
from refprotofl.report.titles import without_place

LEFT_OUT = {"input"}  # class names and normalisation, which figures and tables name


def about_section(told: RunTold) -> Section:
    plain = {name: value for name, value in told.experiment.plain().items() if name not in LEFT_OUT}
    parts: list[Facts | Table] = [
        Facts("Experiment", flat({**plain, "dataset": without_place(told.experiment.dataset)}), folded=True),
        _protocols(told),
        Facts("Environment", _environment(told)),
        Facts("What the numbers come from", _origin(told)),
    ]
    # The user's own code, which a received folder may name, is not imported.
    built_in = METHODS.get(told.experiment.method), built_in_compressor(told.experiment)
    notes = [note for one in built_in if one is not None for note in one.notes]
    if notes:
        rows = [[words(note)] for note in notes]
        parts.append(Table("Where the method departs from what its authors published", ("note",), rows))
    return Section("about", "What was run", parts)


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Dotted keys."""
    found: dict[str, object] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _listed(value) if isinstance(value, list | tuple) else shown(value)
    return found


def _listed(values: "list[object] | tuple[object, ...]") -> str:
    told = ", ".join(words(value) for value in values[:20])
    return f"{told}, … ({len(values)} in all)" if len(values) > 20 else told


def _protocols(told: RunTold) -> Table:
    latest = told.evaluations[-1]["accuracy"] if told.evaluations else {}
    rows = [
        [name, protocol.meaning, "-" if latest.get(name) is None else f"{100 * (latest[name] or 0):.2f} %"]
        for name, protocol in PROTOCOLS.items()
    ]
    note = "The last round is reported, never the best."
    every = f"Evaluated every {told.experiment.evaluate.every} rounds and after the last one."
    return Table("Protocols", ("protocol", "what it is", "accuracy"), rows, (note, every), left=2)


def _environment(told: RunTold) -> dict[str, object]:
    if not told.starts:
        return {}
    last = told.starts[-1]
    machine = {words(name): shown(value) for name, value in last.get("machine", {}).items()}
    return {
        **machine,
        "device": shown(last.get("device", "-")),
        "workers": last.get("workers", "-"),
        "times begun": len(told.starts),
        "run id": shown(last.get("run", "-")),
    }


def _origin(told: RunTold) -> dict[str, object]:
    """As the manifest has it; a folder without one, or with a damaged one, tells less."""
    facts: dict[str, object] = {"experiment hash": told.experiment.hash}
    try:
        manifest = read_manifest(told.folder / CHECKPOINT)
    except RefProtoFLError:
        manifest = {}
    origin = manifest.get("origin") or {}
    facts["digest of the data"] = shown(origin.get("data")) or "not on record"
    facts["numerics"] = shown(origin.get("numerics", "unrecorded"))
    facts |= {f"code of {words(name)}": shown(digest) for name, digest in origin.get("code", {}).items()}
    partition = told.starts[-1].get("partition", {}) if told.starts else {}
    if "kind" in partition:
        redraws, moved = partition.get("redraws", 0), partition.get("moved", 0)
        facts["partition"] = f"{words(partition['kind'])}, {redraws} redraws, {moved} samples moved"
    if manifest:
        facts[f"state digest of round {manifest['progress']['round']}"] = manifest["state_digest"]
    return facts
