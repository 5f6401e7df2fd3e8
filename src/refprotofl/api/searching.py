"""Searches from Python: settings of methods, and the front of accuracy against bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refprotofl.api.comparing import Methods, names_of
from refprotofl.api.frames import as_frame, as_html
from refprotofl.api.running import Given, as_base, folder_of, listed
from refprotofl.api.watching import Callbacks, Watched
from refprotofl.api.words import python_words
from refprotofl.core import InputError, percent, size
from refprotofl.experiment import Experiment, read_settings
from refprotofl.federation import Workers
from refprotofl.studies import CELLS, KeptResults, Planner
from refprotofl.studies.frontier import candidates, front, front_table
from refprotofl.studies.frontier.limits import read_limit
from refprotofl.studies.tune import search as searching
from refprotofl.studies.tune.settings import write_search
from refprotofl.studies.tune.space import read_dimension

if TYPE_CHECKING:
    import pandas

Values = Sequence[Any] | str


def _plain(tried: searching.ConfigurationResult) -> dict[str, Any]:
    """Return the values of a configuration by key."""
    return {key: read_settings([f"value={text}"])["value"] for key, text in tried.configuration.settings}


@dataclass(frozen=True)
class Tuning:
    """The search of several methods: what was tried, and what was chosen on validation data.

    >>> found = tune(["fedprox"], {"train.lr": [0.01, 0.03]}, "quick")
    >>> found.settings["fedprox"], found.best("fedprox")
    """

    results: tuple[searching.SearchResult, ...]
    request: searching.Request
    record: Path  # trials.jsonl

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The chosen values by method and key."""
        return {one.method: _plain(one.chosen) for one in self.results}

    @python_words
    def best(self, method: str, seed: int = 0) -> Experiment:
        """Return the experiment with the settings chosen for a method, scored on the test set."""
        found = {one.method: one for one in self.results}
        if method not in found:
            raise InputError(f"{method} was not searched; searched are {', '.join(found)}.")
        trial = self.request.trial(method, found[method].chosen.configuration, seed)
        held_out = self.request.base.experiment(searching.row_of(method), seed).validation
        rounds = self.request.experiment.rounds
        return Experiment.parse({**trial.experiment.asked(), "rounds": rounds, "validation": held_out})

    @property
    def records(self) -> list[dict[str, Any]]:
        """Every configuration that was tried as plain values."""
        return [
            {
                "method": one.method,
                **_plain(tried),
                "rounds": tried.configuration.rounds,
                self.request.protocol: None if tried.failed else tried.score,
                "chosen": tried is one.chosen,
            }
            for one in self.results
            for tried in one.tried
        ]

    @python_words
    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame (needs pandas) with a row for each configuration that was tried."""
        return as_frame(self.records)

    def _repr_html_(self) -> str:
        rows = [
            (one.method, ", ".join(one.chosen.configuration.typed) or "defaults", percent(one.chosen.score))
            for one in self.results
        ]
        return as_html(
            "Chosen on validation data", ("method", "settings", self.request.protocol), rows, [f"All: {self.record}"]
        )


@python_words
def tune(
    methods: Methods,
    search: Mapping[str, Values],
    experiment: Given = None,
    *,
    strategy: Literal["each", "grid", "random", "halving"] = "each",
    trials: int = 9,
    seeds: Sequence[int] | int = (1000, 1001),
    protocol: str = "personal",
    out: Path | str = "runs/tune",
    data: Path | str | None = None,
    workers: Workers = "auto",
    callback: Callbacks = None,
) -> Tuning:
    """Search good settings for several methods, each with the same budget, on data that clients hold out.

    `search` maps keys to values, or to a range such as `"0.001..0.1:log"`. The test set is not used.

    >>> tune(["fedprox"], {"train.lr": [0.01, 0.03], "fedprox.mu": [0.01, 0.1]}, "quick").settings
    """
    folder = folder_of(out)
    request = searching.Request(
        base=as_base(experiment, folder),
        methods=names_of(methods),
        dimensions=tuple(read_dimension(f"{key}={_typed(values)}") for key, values in search.items()),
        strategy=strategy,
        trials=trials,
        seeds=listed(seeds),
        protocol=protocol,
        out=folder,
    )
    searching.check(request)
    planner = _planner(folder, data, workers, callback)
    planner.conduct(searching.first_runs(request))
    found = tuple(planner.conduct(searching.tune(request, method)) for method in request.methods)
    return Tuning(found, request, write_search(request, found))


def _typed(values: Values) -> str:
    if isinstance(values, str):
        return values
    return ",".join(str(one).lower() if isinstance(one, bool) else str(one) for one in values)


def _planner(folder: Path, data: Path | str | None, workers: Workers, callback: Callbacks) -> Planner:
    kept = KeptResults(folder / CELLS)
    return Planner(None if data is None else folder_of(data), workers, kept=kept, progress=Watched(callback))


@dataclass(frozen=True)
class FrontierResult:
    """The candidates of a search within a limit of traffic, and the most accurate one that keeps within it.

    >>> found = frontier("quick", budget="2 MB")
    >>> found.best, found.to_frame()
    """

    found: front.Frontier
    request: candidates.Request
    record: Path  # frontier.json
    data: Path | None = None

    @property
    def command(self) -> str | None:
        """The command that runs the best candidate; None if none keeps within the limit."""
        return front_table.command(self.request, self.found, self.data)

    @property
    def best(self) -> Experiment | None:
        """The experiment of the best candidate, scored on the test set; None if none keeps within the limit."""
        winner = self.found.winner
        return None if winner is None else self.request.alone(winner.candidate)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The candidates as plain values, the finished ones first."""
        return [
            {
                "method": one.candidate.name,
                "rounds": one.candidate.schedule.rounds,
                "local_epochs": one.candidate.schedule.epochs,
                "rounds_run": one.rounds,
                self.request.protocol: None if one.failed or not one.values else one.accuracy,
                "bytes": one.sent.total,
                "share_of_limit": one.share,
                "front": one.front,
                "failed": one.failed,
            }
            for one in self.found.tried
        ]

    @python_words
    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame (needs pandas) with a row for each candidate."""
        return as_frame(self.records)

    def _repr_html_(self) -> str:
        protocol = self.request.protocol
        rows = [
            (one["method"], percent(one[protocol]), size(one["bytes"]), "yes" if one["front"] else "")
            for one in self.records
        ]
        notes = [f"Run the best: {self.command}"] if self.command else []
        return as_html(f"Within {self.request.limit.words}", ("method", protocol, "bytes", "front"), rows, notes)


@python_words
def frontier(
    experiment: Given = None,
    *,
    budget: str | int | None = None,
    round_budget: str | int | None = None,
    link: str | None = None,
    deadline: float | None = None,
    methods: Methods | None = None,
    schedules: str | None = None,
    ends: int = 6,
    seeds: Sequence[int] | int = (1000,),
    protocol: str = "personal",
    out: Path | str = "runs/frontier",
    data: Path | str | None = None,
    workers: Workers = "auto",
    callback: Callbacks = None,
) -> FrontierResult:
    """Search the best method and setting for your data within a limit of traffic.

    Give one limit: `budget` of all clients' bytes such as `"10 MB"`, `round_budget` of one client's bytes in any round,
    or `link` with `deadline` in seconds. The test set is not used.

    >>> frontier("quick", budget="2 MB", methods=["fedavg", "thin"]).best
    """
    folder = folder_of(out)
    sizes = [None if one is None else str(one) for one in (budget, round_budget)]
    request = candidates.Request(
        base=as_base(experiment, folder),
        methods=None if methods is None else names_of(methods),
        schedules=candidates.read_schedules(schedules) if schedules is not None else (),
        limit=read_limit(sizes[0], sizes[1], link, deadline),
        seeds=listed(seeds),
        protocol=protocol,
        ends=ends,
        out=folder,
    )
    front.check(request)
    found = _planner(folder, data, workers, callback).conduct(front.frontier(request))
    place = None if data is None else folder_of(data)
    front_table.write_tables(request, found)
    return FrontierResult(found, request, front_table.write_record(request, found, place), place)
