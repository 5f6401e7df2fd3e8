"""How far a run that is watched has come, and when it will be done."""

from statistics import fmean
from typing import Any

from refprotofl.report.page.parts import words
from refprotofl.report.page.reading import RunTold

RECENT = 20  # rounds that the rest is expected to be like
MOST_CLIENTS = 500  # whose state is shown


def progress_of(told: RunTold) -> dict[str, Any]:
    experiment, done = told.experiment, told.rounds_done
    left = 0 if told.ended else max(0, experiment.rounds - done)
    pace = fmean(one.seconds for one in told.rounds[-RECENT:]) if told.rounds else None
    return {
        "rounds": experiment.rounds,
        "done": done,
        "ended": told.ended,
        "seconds_left": None if pace is None else pace * left,
        "budget": _budget(told),
        "clients": _clients(told),
    }


def _budget(told: RunTold) -> dict[str, int] | None:
    """What a client may send in a round, where that is bounded, and the most that one sent in the last ones."""
    table = told.experiment.plain().get(told.experiment.method)
    allowed = table.get("uplink-budget") if isinstance(table, dict) else None
    if not isinstance(allowed, int) or isinstance(allowed, bool) or allowed <= 0:
        return None
    return {"allowed": allowed, "sent": max((one.most_up for one in told.rounds[-RECENT:]), default=0)}


def _clients(told: RunTold) -> list[dict[str, Any]]:
    """Each client's state: whether it took part in the latest round, was dropped from it, or was not asked."""
    done = told.rounds_done
    gone = {one["client"] for one in told.failures if one.get("round") == done}
    states = []
    for number in range(min(told.experiment.clients, MOST_CLIENTS)):
        seen = told.last_seen.get(number)
        state = "dropped" if number in gone else "took part" if seen == done and done else "waits"
        states.append({"name": words(told.experiment.client_name(number))[:24], "state": state, "seen": seen})
    return states
