"""The paper's tables and figures from Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from refprotofl.api.frames import as_frame, as_html
from refprotofl.api.running import folder_of, listed
from refprotofl.api.watching import Callbacks, Watched, log
from refprotofl.api.words import python_words
from refprotofl.core import InputError
from refprotofl.federation import Workers
from refprotofl.report import Table
from refprotofl.studies import CELLS, KeptResults, Planner, find_cells
from refprotofl.studies.reproduce import outputs, request
from refprotofl.studies.reproduce.studies import Scope

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Reproduction:
    """Tables with the paper's numbers next to ours, and the figures.

    >>> found = reproduce("accuracy", preset="quick")
    >>> found.tables["accuracy-standard"]
    """

    tables: Mapping[str, Table]  # by the name of their files
    figures: tuple[str, ...]  # a sentence for each, with its path
    folder: Path
    failures: Mapping[str, str]  # reasons by run, of those that failed

    @python_words
    def to_frame(self, table: str) -> "pandas.DataFrame":
        """Return a table as a data frame (needs pandas)."""
        if table not in self.tables:
            raise InputError(f"There is no table {table!r}; tables: {', '.join(self.tables)}.")
        return as_frame(self.tables[table].records)

    def _repr_html_(self) -> str:
        return "".join(
            as_html(one.title, one.headings, [[entry.text for entry in row] for row in one.rows], one.notes)
            for one in self.tables.values()
        )


@python_words
def reproduce(
    table: str,
    preset: Literal["quick", "small", "full", "paper"] = "quick",
    *,
    dataset: Sequence[str] | str = (),
    alpha: Sequence[float] | float | None = None,
    methods: Sequence[str] = (),
    seeds: Sequence[int] | int = (0, 1, 2),
    variant: Literal["standard", "reconstruction", "both"] = "both",
    against: str = "",
    margin: float | None = None,
    protocol: str = "",
    last: int = 3,
    out: Path | str = "runs/reproduce",
    results: Sequence[Path | str] = (),
    data: Path | str | None = None,
    workers: Workers = "auto",
    no_runs: bool = False,
    callback: Callbacks = None,
) -> Reproduction:
    """Run the experiments of one of the paper's tables or figures, or of all, and write them below `out`.

    `table` is a name such as `accuracy`, `ablation` or `all`. Finished runs in `out` and `results` are used; with
    `no_runs` nothing is run.

    >>> reproduce("accuracy", dataset="digits", methods=["refprotofl", "local"], seeds=[0, 1]).tables
    """
    folder, place = folder_of(out), None if data is None else folder_of(data)
    datasets = (dataset,) if isinstance(dataset, str) else tuple(dataset)
    alphas = (alpha,) if isinstance(alpha, int | float) else alpha
    asked = request.Request(
        table=table,
        preset=preset,
        scope=Scope(
            datasets or request.default_datasets(preset),
            tuple(map(float, alphas)) if alphas else request.alphas_of(preset, None),
            tuple(methods),
        ),
        variants=tuple(one for one in request.VARIANTS if variant in ("both", one)),
        settings=(),
        seeds=listed(seeds),
        tuned={},
        out=folder,
        against=against,
        protocol=protocol,
        margin=margin,
    )
    grids = asked.grids()
    kept = KeptResults(folder / CELLS, tuple(file for one in results for file in find_cells(folder_of(one))))
    planner = Planner(place, workers, kept=kept, progress=Watched(callback))
    found = outputs.results_of(planner, grids, place, no_runs, log.info)
    written = outputs.write_tables(grids, found, last, folder / "tables")
    figures, _ = outputs.draw_all(grids, asked.scope, found, last, place, folder / "figures")
    tables = {one.name: one for some in written.values() for one in (*some.overviews, *some.details)}
    failures = {f"{one.trial.name}, seed {one.trial.experiment.seed}": str(one.problem) for one in planner.failures}
    return Reproduction(tables, tuple(figures), folder, failures)
