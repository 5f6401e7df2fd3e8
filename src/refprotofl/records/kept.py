"""The checkpoints that are kept: each has a `manifest-N.json`, beside `manifest.json` for where the run stands."""

import re
from pathlib import Path
from typing import Any

from refprotofl.compute import numerics
from refprotofl.errors import DataError
from refprotofl.records.inside import CHECKPOINT, check_folder
from refprotofl.records.manifest import kept_name, read_manifest

KEPT = re.compile(r"manifest-(0|[1-9]\d{0,8})\.json")


def kept_rounds(folder: Path) -> list[int]:
    """Those with a manifest of their own, the newest first."""
    if not check_folder(folder):
        return []
    found = [KEPT.fullmatch(path.name) for path in folder.iterdir()]
    return sorted((int(match[1]) for match in found if match), reverse=True)


def readable_manifest(folder: Path) -> dict[str, Any]:
    """The newest that can be read, for what all manifests of a run agree in; nothing where there is none."""
    try:
        return read_manifest(folder)
    except DataError:
        for round in kept_rounds(folder):
            try:
                return read_manifest(folder, kept_name(round))
            except DataError:
                continue
        raise


def recorded_numerics(folder: Path) -> numerics.Mode | None:
    """Return the numerics that the run in this folder was computed with; None before its first committed round.

    Versions that recorded none computed natively.
    """
    try:
        manifest = readable_manifest(folder / CHECKPOINT)
    except DataError:
        return None  # reported when the run is opened
    mode: numerics.Mode | None = manifest.get("origin", {}).get("numerics", "native") if manifest else None
    return mode
