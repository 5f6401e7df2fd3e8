"""Comparisons of methods from Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refprotofl.api.frames import as_frame, as_html
from refprotofl.api.results import RunResult, loaded
from refprotofl.api.running import Given, as_base, folder_of, listed
from refprotofl.api.watching import Callbacks, Watched
from refprotofl.api.words import python_words
from refprotofl.core import InputError, counted, reference_to
from refprotofl.federation import Workers
from refprotofl.report import OverSeeds, headline
from refprotofl.report.formats import FORMATS, accuracies, flat, legend, long_form, protocols_of
from refprotofl.studies import Planner, read_row, split_list
from refprotofl.studies import compare as study
from refprotofl.studies.rows import Row

if TYPE_CHECKING:
    import pandas

Method = str | type | Callable[..., Any]
Methods = str | Sequence[Method] | Mapping[str, Method]


@dataclass(frozen=True)
class Comparison:
    """The rows of a comparison, with accuracy, bytes and the paired difference to the baseline.

    >>> found = compare(["refprotofl", "local"], "quick", seeds=[0, 1])
    >>> found.to_frame()
    >>> found["local"].accuracy["personal"].mean
    """

    rows: tuple[OverSeeds, ...]
    folders: Mapping[Path, str]  # the run folders, with the name of their row
    title: str

    def __getitem__(self, name: str) -> OverSeeds:
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise KeyError(f"{name!r} is not one of the rows {', '.join(found)}")
        return found[name]

    def runs(self, name: str) -> list[RunResult]:
        """Return the runs of a row, in the order of the seeds."""
        return loaded(self[name].runs)

    @property
    def records(self) -> list[dict[str, object]]:
        """The rows as plain values, with the same columns for all."""
        return [flat(row, protocols_of(self.rows)) for row in self.rows]

    @python_words
    def to_frame(self, by: Literal["method", "seed"] = "method") -> "pandas.DataFrame":
        """Return a data frame (needs pandas): a row for each method, or for each method, seed and protocol."""
        return as_frame(long_form(self.rows) if by == "seed" else self.records)

    @python_words
    def to_latex(self, columns: Sequence[str] = ()) -> str:
        """Return a LaTeX table for the package booktabs, of all columns or of those named."""
        return FORMATS["latex"](list(self.rows), self.title, columns)

    @python_words
    def to_markdown(self, columns: Sequence[str] = ()) -> str:
        """Return a Markdown table, of all columns or of those named."""
        return FORMATS["markdown"](list(self.rows), self.title, columns)

    def report(self, path: Path | str) -> Path:
        """Write the report page of all runs, and return its path."""
        from refprotofl.api.reporting import report

        return report(*self.folders, out=path, names=self.folders, title=self.title, trust_code=True)

    def _repr_html_(self) -> str:
        headings, lines = accuracies(self.rows)
        rows = [[row.name, *line] for row, line in zip(self.rows, lines, strict=True)]
        return as_html(
            self.title, ("method", *headings), rows, [f"headline: {headline(self.rows)}", *legend(self.rows)]
        )


@python_words
def compare(
    methods: Methods,
    experiment: Given = None,
    *,
    seeds: Sequence[int] | int = (0, 1, 2),
    against: str | None = "first",
    margin: float | None = None,
    target: float | str | None = None,
    last: int = 3,
    out: Path | str = "runs/compare",
    data: Path | str | None = None,
    workers: Workers = "auto",
    callback: Callbacks = None,
) -> Comparison:
    """Run several methods on the same partitions, initial weights and cohorts.

    `methods` are names with switches such as `fedavg:share=adapter`, classes of your own, or a mapping of row names to
    these. `experiment` is an `Experiment`, a preset's name or a TOML file; the preset `quick` if there is none.
    `against` is the row that the others are compared with, None for no comparison. Finished runs in `out` are reused.

    >>> compare(["refprotofl", "local"], "quick", seeds=[0, 1]).to_frame()
    """
    folder = folder_of(out)
    rows = rows_of(methods)
    request = study.Request(
        base=as_base(experiment, folder),
        rows=rows,
        seeds=listed(seeds),
        baseline=study.read_baseline(None if against == "first" else (against or "none"), rows),
        last=last,
        runs=folder,
        margin=margin,
        target=study.read_target(None if target is None else str(target)),
    )
    study.check(request)
    planner = Planner(None if data is None else folder_of(data), workers, progress=Watched(callback))
    found = planner.conduct(study.compare(request), stop_at_failure=True)
    title = f"{request.trials()[0].experiment.dataset}: mean over {counted(len(request.seeds), 'seed')}"
    return Comparison(tuple(found.rows), found.runs, title)


def rows_of(methods: Methods) -> tuple[Row, ...]:
    """Return the rows that methods stand for."""
    if isinstance(methods, str):
        return tuple(map(read_row, split_list(methods)))
    if isinstance(methods, Mapping):
        return tuple(Row(name, _asked(method)) for name, method in methods.items())
    return tuple(read_row(one) if isinstance(one, str) else Row(one.__name__, _asked(one)) for one in methods)


def _asked(method: Method) -> str:
    """Return a method as it is typed; a class by its module and name."""
    asked = reference_to(method)
    if not isinstance(asked, str):
        raise InputError(f"{method!r} is not a method: pass a name or a class.")
    return asked


def names_of(methods: Methods) -> tuple[str, ...]:
    """Return methods with their switches, for searches, which have no names of rows."""
    return tuple(row.asked for row in rows_of(methods))
