"""Report pages and partitions from Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.api.frames import as_frame, as_html
from refprotofl.api.running import Given, as_experiment, folder_of
from refprotofl.api.words import python_words
from refprotofl.core import InputError
from refprotofl.data import FederatedData, export_federation, load_federated
from refprotofl.data.federated import under
from refprotofl.experiment import Experiment

if TYPE_CHECKING:
    import pandas

    from refprotofl.federation import RunResult


@python_words
def report(
    *runs: "Path | str | RunResult",
    out: Path | str | None = None,
    figures: Path | str | None = None,
    width: float | str | None = None,
    links: Sequence[str] = (),
    against: str | None = None,
    names: Mapping[Path, str] | None = None,
    title: str = "",
    data: Path | str | None = None,
    trust_code: bool = False,
) -> Path:
    """Write a self-contained HTML report of runs, or of the folder of a grid, and return its path.

    `out` is report.html in the folder, or in the working directory for several. `figures` is a folder for the page's
    figures, and `width` their width in inches or of a paper's column, such as `"ieee"`. `links` adds accuracy over
    the estimated time on links such as `"lte"`.

    >>> report("runs/a", out="a.html", links=["lte"])
    """
    from refprotofl.core import read_links
    from refprotofl.report import draw_figures, gather
    from refprotofl.report.page.html import page_path, write_page
    from refprotofl.report.page.static_figures import read_width

    if not runs:
        raise InputError("report needs at least one run folder.")
    places = [folder_of(one) if isinstance(one, str | Path) else one.folder for one in runs]
    path = page_path(places, None if out is None else folder_of(out))
    profiles = {f"link-{number}": read_links(text) for number, text in enumerate(links, 1)}
    place = None if data is None else folder_of(data)
    page = gather(places, profiles, place, against, names=names, title=title, trust_code=trust_code)
    write_page(page, path)
    if figures is not None:
        draw_figures(page.figures, folder_of(figures), width=None if width is None else read_width(str(width)))
    return path


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of each client by class.

    >>> partition(Experiment.preset("quick", alpha=0.1)).to_frame()
    """

    experiment: Experiment
    data: FederatedData

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.data.dataset.class_names

    @property
    def client_names(self) -> tuple[str, ...]:
        return self.data.client_names or tuple(map(str, range(len(self.data.client_indices))))

    @property
    def counts(self) -> list[list[int]]:
        """The number of training samples, by client and class."""
        found: list[list[int]] = self.data.class_counts().tolist()
        return found

    @property
    def records(self) -> list[dict[str, object]]:
        """A record for each client: its name, the number of its samples, and those of each class."""
        return [
            {"client": client, "total": sum(counts), **dict(zip(self.class_names, counts, strict=True))}
            for client, counts in zip(self.client_names, self.counts, strict=True)
        ]

    @python_words
    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame (needs pandas) with a row for each client."""
        return as_frame(self.records)

    @python_words
    def draw(self, path: Path | str) -> Path:
        """Draw the partition to a .png, .pdf or .svg file, and return its path."""
        from refprotofl.report import Panel, draw_partitions

        caption = f"{self.experiment.dataset}, {self.experiment.partition_title}"
        notes = self.data.partition_notes
        panel = Panel(self.data.class_counts(), self.class_names, caption, self.data.client_names, notes.shift)
        draw_partitions([panel], folder_of(path))
        return folder_of(path)

    @python_words
    def export(self, folder: Path | str) -> list[Path]:
        """Write one .npz per client, public.npz and test.npz to a new folder, for a deployment."""
        from refprotofl.federation import prepare, resolve

        seen = resolve(prepare(self.experiment), self.data).known_input
        return list(export_federation(under(self.data, seen), folder_of(folder), seen))

    def _repr_html_(self) -> str:
        rows = [tuple(one.values()) for one in self.records]
        title = f"{self.experiment.dataset}, {self.experiment.partition_title}"
        return as_html(title, ("client", "total", *self.class_names), rows, self.data.notes)


@python_words
def partition(experiment: Given = None, *, data: Path | str | None = None) -> Partition:
    """Return the samples of each client by class, as an experiment partitions its data; nothing is trained.

    `experiment` is an `Experiment`, a preset's name or a TOML file; the preset `quick` if there is none.

    >>> partition(Experiment.preset("quick", alpha=0.1)).counts
    """
    asked = as_experiment(experiment)
    return Partition(asked, load_federated(asked, None if data is None else folder_of(data)))
