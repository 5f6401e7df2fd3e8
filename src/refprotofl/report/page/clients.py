"""Figures of a run's clients and classes: accuracy by client, partition, confusion matrix; dropped clients."""

from collections.abc import Sequence

import numpy as np

from refprotofl.evaluation import PROTOCOLS, per_class_accuracy
from refprotofl.report.page.elements import MOST_ROWS, Cell, Column, Figure, Table, words
from refprotofl.report.page.run_reader import RunRecord

MOST_CLASSES = 100  # of a confusion matrix that is drawn
LONGEST_CLASS = 32  # characters of a name


def class_names(run: RunRecord) -> list[str]:
    """Return the names as they are displayed; where two would be equal, their index is appended."""
    short = [words(name)[:LONGEST_CLASS] for name in run.experiment.known_input.class_names]
    return [name if short.count(name) == 1 else f"{name} #{number}" for number, name in enumerate(short)]


def class_figures(run: RunRecord) -> list[Figure]:
    counts = run.evaluations[-1].get("confusion", []) if run.evaluations else []
    names = class_names(run)
    if len(counts) != len(names) or any(len(row) != len(names) for row in counts) or len(names) > MOST_CLASSES:
        return []
    matrix = np.array(counts, np.int64)
    rows: list[list[Cell]] = [
        [names[label], names[predicted], count, count / max(1, sum(row))]
        for label, row in enumerate(counts)
        for predicted, count in enumerate(row)
        if count or len(names) <= 25
    ]
    shares = sorted(
        ((share, name) for share, name in zip(per_class_accuracy(matrix), names, strict=True) if share is not None),
    )
    ranked: list[list[Cell]] = [[rank, name, share] for rank, (share, name) in enumerate(shares, 1)]
    return [
        Figure(
            "confusion",
            "Confusion matrix",
            "Personal predictions of all clients. Rows are true classes, shaded by their share of predictions.",
            "heat",
            (
                Column("label", "true class", "text"),
                Column("predicted", "predicted class", "text"),
                Column("count", "samples", "whole"),
                Column("share", "share of the true class", "share"),
            ),
            rows,
            x="predicted",
            y="label",
            colour="share",
            across=tuple(names),
            upwards=tuple(names),
        ),
        Figure(
            "classes",
            "Per-class accuracy",
            "Share of a class's test samples that is predicted correctly, over all clients, in ascending order.",
            "bars",
            (Column("rank", "rank", "whole"), Column("class", "class", "text"), Column("share", "accuracy", "share")),
            ranked,
            x="class",
            y="share",
            size="rank",
        ),
    ]


MOST_BARS = 120  # clients that get their own bar
MOST_DOTS = 2000
MOST_BUBBLES = 3000  # clients by classes
MOST_LISTED = 100
LONGEST_CLIENT = 24  # characters of a name

ACCURACY = Column("accuracy", "accuracy", "share")
CLIENT = Column("client", "client", "text")


def client_figures(run: RunRecord) -> list[Figure]:
    per_client = run.evaluations[-1].get("per_client", {}) if run.evaluations else {}
    scored = [(name, per_client[name]) for name in ("personal", "own") if name in per_client]
    found = [figure for name, shares in scored for figure in _by_client(run, name, shares)]
    return [*found, *_partition(run)]


def _by_client(run: RunRecord, protocol: str, shares: Sequence[float | None]) -> list[Figure]:
    sizes, experiment = run.sizes(), run.experiment
    ranked = sorted((share, number) for number, share in enumerate(shares[: experiment.clients]) if share is not None)
    meaning = PROTOCOLS[protocol].definition(experiment.validation)
    if len(ranked) <= MOST_BARS:
        rows: list[list[Cell]] = [
            [rank, _name(run, number), share, sizes[number] if sizes else None]
            for rank, (share, number) in enumerate(ranked, 1)
        ]
        return [
            Figure(
                f"clients-{protocol}",
                f"Accuracy per client, {protocol}",
                f"{meaning[0].upper()}{meaning[1:]}. In ascending order, shaded by number of samples.",
                "bars",
                (Column("rank", "rank", "whole"), CLIENT, ACCURACY, Column("samples", "samples", "whole")),
                rows,
                x="client",
                y="accuracy",
                colour="samples" if sizes else None,
                size="rank",
            )
        ]
    if sizes is None:
        return []
    dots: list[list[Cell]] = [
        [_name(run, number), sizes[number], share] for share, number in ranked[:: -(-len(ranked) // MOST_DOTS)]
    ]
    return [
        Figure(
            f"clients-{protocol}",
            f"Accuracy per client, {protocol}",
            f"{meaning[0].upper()}{meaning[1:]}, by number of samples.",
            "dots",
            (CLIENT, Column("samples", "samples", "whole"), ACCURACY),
            dots,
            x="samples",
            y="accuracy",
        )
    ]


def _name(run: RunRecord, client: int) -> str:
    """Return a short name; one that is cut ends in the client's number."""
    named = words(run.experiment.client_name(client)) if client < run.experiment.clients else str(client)
    return named if len(named) <= LONGEST_CLIENT else f"{named[:LONGEST_CLIENT]}… #{client}"


def _partition(run: RunRecord) -> list[Figure]:
    counts, names = run.class_counts, class_names(run)
    if counts is None or len(counts) * len(names) > MOST_ROWS:
        return []
    many = len(counts) * len(names) > MOST_BUBBLES
    clients = [_name(run, client) for client in range(len(counts))]
    rows: list[list[Cell]] = [
        [clients[client], names[label], count]
        for client, row in enumerate(counts)
        for label, count in enumerate(row)
        if count
    ]
    return [
        Figure(
            "partition",
            "Data partition",
            f"Training samples of each client by class{'' if many else '; bubble areas are proportional'}.",
            "heat" if many else "bubbles",
            (CLIENT, Column("class", "class", "text"), Column("samples", "samples", "whole")),
            rows,
            x="client",
            y="class",
            size=None if many else "samples",
            colour="samples" if many else None,
            across=tuple(clients),
            upwards=tuple(names),
        )
    ]


def dropped_tables(run: RunRecord) -> list[Table]:
    """Return the dropped clients by reason, by client and the latest; no table if there are none."""
    if not run.absent:
        return []
    by_reason = [[words(reason), f"{count:,}"] for reason, count in run.reasons.most_common(MOST_LISTED)]
    by_client = [
        [_name(run, client), f"{count:,}", str(run.last_seen.get(client, "-"))]
        for client, count in run.absent.most_common(MOST_LISTED)
    ]
    latest = [
        [str(one.get("round", "-")), _name(run, one["client"]), one.get("code", "-"), words(one.get("reason", ""))]
        for one in run.failures[: -MOST_LISTED - 1 : -1]
    ]
    total = sum(run.absent.values())
    return [
        Table(f"Dropped clients: {total:,}", ("reason", "times"), by_reason),
        Table("Dropped clients by client", ("client", "times dropped", "last round with an answer"), by_client),
        Table("Latest drops", ("round", "client", "code", "reason"), latest, left=4),
    ]
