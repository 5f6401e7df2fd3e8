"""What was taken for what, and how well each class is recognised."""

import numpy as np

from refprotofl.evaluation.metrics import per_class_accuracy
from refprotofl.report.page.elements import Cell, Column, Figure, words
from refprotofl.report.page.sources import RunTold

MOST_CLASSES = 100  # of which every pair is drawn
LONGEST = 32  # characters of a name


def class_names(told: RunTold) -> list[str]:
    """As they are shown, and no two alike: two that begin alike are told apart by their number."""
    short = [words(name)[:LONGEST] for name in told.experiment.known_input.class_names]
    return [name if short.count(name) == 1 else f"{name} #{number}" for number, name in enumerate(short)]


def class_figures(told: RunTold) -> list[Figure]:
    counts = told.evaluations[-1].get("confusion", []) if told.evaluations else []
    names = class_names(told)
    if len(counts) != len(names) or any(len(row) != len(names) for row in counts) or len(names) > MOST_CLASSES:
        return []
    matrix = np.array(counts, np.int64)
    rows: list[list[Cell]] = [
        [names[label], names[taken], count, count / max(1, sum(row))]
        for label, row in enumerate(counts)
        for taken, count in enumerate(row)
        if count or len(names) <= 25
    ]
    shares = sorted(
        ((share, name) for share, name in zip(per_class_accuracy(matrix), names, strict=True) if share is not None),
    )
    ranked: list[list[Cell]] = [[rank, name, share] for rank, (share, name) in enumerate(shares, 1)]
    return [
        Figure(
            "confusion",
            "What was taken for what",
            "All clients' personal predictions: a row for each label, shaded by the share of its samples.",
            "heat",
            (
                Column("label", "label", "text"),
                Column("taken", "taken for", "text"),
                Column("count", "samples", "whole"),
                Column("share", "share of the label", "share"),
            ),
            rows,
            x="taken",
            y="label",
            colour="share",
            across=tuple(names),
            upwards=tuple(names),
        ),
        Figure(
            "classes",
            "How well each class is recognised",
            "The share of a class's test samples that was recognised, over all clients; sorted.",
            "bars",
            (Column("rank", "rank", "whole"), Column("class", "class", "text"), Column("share", "recognised", "share")),
            ranked,
            x="class",
            y="share",
            size="rank",
        ),
    ]
