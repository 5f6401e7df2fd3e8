"""Statistics and tables from finished runs."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.report.comparison import (
        Difference,
        OverSeeds,
        all_pairs,
        headline,
        scores_differ,
        tabulate,
        to_target,
        with_two_models,
    )
    from refprotofl.report.formats import (
        accuracies,
        difference,
        efforts,
        footnotes,
        margin_note,
        metric_values,
        models_note,
        short_difference,
        with_interval,
    )
    from refprotofl.report.page.collect import Blocks, gather
    from refprotofl.report.page.comparison_page import frontier_figure
    from refprotofl.report.page.static_figures import draw_figure, draw_figures
    from refprotofl.report.pictures.accuracy import draw_bars, draw_curves, draw_epsilons, draw_sweep
    from refprotofl.report.pictures.embedding import draw_embeddings, embed_run
    from refprotofl.report.pictures.partition import Panel, draw_partitions, partition_panel
    from refprotofl.report.statistics import Estimate, Standing, estimate, paired, spread, standings
    from refprotofl.report.tables import Entry, Table, write_table
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Blocks",
    "Difference",
    "Entry",
    "Estimate",
    "OverSeeds",
    "Panel",
    "Standing",
    "Table",
    "accuracies",
    "all_pairs",
    "difference",
    "draw_bars",
    "draw_curves",
    "draw_embeddings",
    "draw_epsilons",
    "draw_figure",
    "draw_figures",
    "draw_partitions",
    "draw_sweep",
    "efforts",
    "embed_run",
    "estimate",
    "footnotes",
    "frontier_figure",
    "gather",
    "headline",
    "margin_note",
    "metric_values",
    "models_note",
    "paired",
    "partition_panel",
    "scores_differ",
    "short_difference",
    "spread",
    "standings",
    "tabulate",
    "to_target",
    "with_interval",
    "with_two_models",
    "write_table",
]
