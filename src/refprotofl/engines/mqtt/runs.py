"""The runs and the nodes of a site as files: commands write what they ask for, the server writes how things are."""

import json
import time
from pathlib import Path
from typing import Any

from refprotofl.core import DataError
from refprotofl.deploy.site import Site
from refprotofl.records import check_file, create_file, read_json, write_whole


def submit(site: Site, config: dict[str, str]) -> int:
    """Write a run that the server starts; return its number."""
    with site.locked("runs"):
        number = 1 + max([0, *_numbers(site)])
        found = {"config": config, "status": "pending", "reason": "", "exit_code": 4, "since": time.time()}
        create_file(_path(site, number), json.dumps(found).encode(), 0o600)
    return number


def update(site: Site, run: int, **changed: Any) -> None:
    """Change what is known of a run, unless it has ended."""
    with site.locked("runs"):
        found = read_run(site, run)
        if not found["status"].startswith("finished"):
            write_whole(_path(site, run), json.dumps(found | changed).encode())


def finish(site: Site, run: int, how: str, reason: str, exit_code: int = 4) -> None:
    """Note how a run has ended: completed, failed or stopped. The first note stays."""
    update(site, run, status=f"finished:{how}", reason=reason, exit_code=exit_code)


def read_run(site: Site, run: int) -> dict[str, Any]:
    try:
        found = read_json(_path(site, run))
        if isinstance(found, dict) and isinstance(found["status"], str) and isinstance(found["config"], dict):
            return found
    except (OSError, ValueError, KeyError):
        pass
    raise DataError(f"There is no run {run} of {site.folder}, or {_path(site, run)} is damaged.")


def all_runs(site: Site) -> list[int]:
    """Return the runs, the newest first."""
    return sorted(_numbers(site), reverse=True)


def pending(site: Site) -> list[int]:
    return [run for run in _numbers(site) if read_run(site, run)["status"] == "pending"]


def unfinished(site: Site) -> list[int]:
    """Return the runs that were under way: a pending one is still to be started."""
    return [run for run in _numbers(site) if read_run(site, run)["status"] == "running"]


def stop_file(site: Site, run: int) -> Path:
    return site.runs / f"{run}.stop"


def write_nodes(site: Site, online: dict[str, float], seen: dict[str, float]) -> None:
    """Write since when nodes are online, and when others were seen last, in seconds since 1970."""
    write_whole(_nodes(site), json.dumps({"online": online, "seen": seen}).encode())


def read_nodes(site: Site, kind: str = "seen") -> dict[str, float]:
    """Return the times by node; `kind`: "online" or "seen"."""
    if not check_file(_nodes(site)):
        return {}
    try:
        return {str(node): float(at) for node, at in read_json(_nodes(site))[kind].items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


def _nodes(site: Site) -> Path:
    return site.server / "presence.json"


def _path(site: Site, run: int) -> Path:
    return site.runs / f"{run}.run"


def _numbers(site: Site) -> list[int]:
    return [int(path.stem) for path in site.runs.glob("*.run") if path.stem.isdigit()]
