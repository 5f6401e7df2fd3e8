"""The origin of a run's numbers next to its experiment (data, code, numerics), compared with the present one."""

from itertools import count
from pathlib import Path

from refprotofl.core import InputError, digest_code, numerics, references
from refprotofl.data import digest_data
from refprotofl.experiment import Experiment
from refprotofl.records import Origin, readable_manifest, sha256
from refprotofl.records import folder as folders
from refprotofl.records.safe_io import CHECKPOINT

RESULTS = 1  # raised when a pinned digest changes, and only then: what was computed before is not reused


def origin_of(
    experiment: Experiment, data_dir: Path | None, seen_from: Path | None = None, mode: numerics.Mode | None = None
) -> Origin:
    """Return what decides the numbers of a run that asks for the numerics `mode`; without it, they are not compared.

    `seen_from`: where a relative path of the data starts, if not here.
    """
    code = {name: digest_code(name) for _, name in references(experiment.plain())}
    origin: Origin = {
        "results": RESULTS,
        "data": _digest_all(experiment, data_dir, seen_from),
        "code": {name: digest for name, digest in code.items() if digest is not None},
    }
    if mode is not None:
        origin["numerics"] = numerics.resolve(mode)
    return origin


def _digest_all(experiment: Experiment, data_dir: Path | None, seen_from: Path | None) -> str | None:
    """Return the digest of the data set, together with those of a separate public set and test set."""
    names = [experiment.dataset, *filter(None, (experiment.public.dataset, experiment.test.dataset))]
    digests = [digest_data(name, data_dir, seen_from) for name in names]
    known = [digest for digest in digests if digest is not None]
    if len(known) < len(digests):
        return None
    return known[0] if len(known) == 1 else sha256("\n".join(known).encode())


def changes(stored: Origin, now: Origin, experiment: Experiment) -> list[str]:
    """Return what changed; what was unknown then, or is unknown now, does not count."""
    found = []
    if None not in (stored["data"], now["data"]) and stored["data"] != now["data"]:
        found.append(f"the data of dataset = {experiment.dataset!r}")
    for name in sorted(stored["code"].keys() & now["code"].keys()):
        if stored["code"][name] != now["code"][name]:
            found.append(f"the code of {name}")
    if stored["results"] != now["results"]:
        found.append("the numbers that this version of refprotofl computes")
    then, today = stored.get("numerics"), now.get("numerics")
    if None not in (then, today) and then != today:
        found.append(f'numerics ("{then}" before, "{today}" here and now)')
    return found


def changed_since(
    folder: Path, experiment: Experiment, data_dir: Path | None, mode: numerics.Mode | None = None
) -> list[str]:
    """Return what changed since the run in this folder; nothing where its origin is not recorded."""
    stored = readable_manifest(folder / CHECKPOINT).get("origin")
    if stored is None:
        return []
    return changes(stored, origin_of(experiment, data_dir, folders.seen_from(folder), mode), experiment)


def refuse_changed(
    folder: Path, experiment: Experiment, data_dir: Path | None, mode: numerics.Mode | None = None
) -> None:
    changed = changed_since(folder, experiment, data_dir, mode)
    if changed:
        raise InputError(
            f"The run in {folder} cannot be used any more: {' and '.join(changed)} changed since. Bring back what it "
            "began with, or use another --out."
        )


def current_folder(folder: Path, experiment: Experiment, data_dir: Path | None) -> Path:
    """Return the folder, or the first of those numbered after it, that is free or whose run has the present origin."""
    for number in count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not changed_since(candidate, experiment, data_dir, experiment.numerics):
            return candidate
    raise AssertionError("there is always a free one")
