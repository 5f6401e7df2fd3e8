"""Figures of a run's clients and classes: accuracy by client, partition, confusion matrix; dropped clients."""

from collections.abc import Sequence

import numpy as np

from refprotofl.core.units import counted
from refprotofl.evaluation.metrics import per_class_accuracy
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.report.page.elements import MOST_ROWS, Cell, Column, Figure, Table, words
from refprotofl.report.page.run_reader import RunTold

MOST_CLASSES = 100  # of which every pair is drawn
LONGEST_CLASS = 32  # characters of a name


def class_names(told: RunTold) -> list[str]:
    """As they are shown, and no two alike: two that begin alike are told apart by their number."""
    short = [words(name)[:LONGEST_CLASS] for name in told.experiment.known_input.class_names]
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


MOST_BARS = 120  # clients that get a bar of their own
MOST_DOTS = 2000
MOST_BUBBLES = 3000  # clients by classes
MOST_LISTED = 100
LONGEST_CLIENT = 24  # characters of a name

ACCURACY = Column("accuracy", "accuracy", "share")
CLIENT = Column("client", "client", "text")


def client_figures(told: RunTold) -> list[Figure]:
    per_client = told.evaluations[-1].get("per_client", {}) if told.evaluations else {}
    scored = [(name, per_client[name]) for name in ("personal", "own") if name in per_client]
    found = [figure for name, shares in scored for figure in _by_client(told, name, shares)]
    return [*found, *_partition(told)]


def _by_client(told: RunTold, protocol: str, shares: Sequence[float | None]) -> list[Figure]:
    sizes, experiment = told.sizes(), told.experiment
    ranked = sorted((share, number) for number, share in enumerate(shares[: experiment.clients]) if share is not None)
    meaning = PROTOCOLS[protocol].meaning
    if len(ranked) <= MOST_BARS:
        rows: list[list[Cell]] = [
            [rank, _name(told, number), share, sizes[number] if sizes else None]
            for rank, (share, number) in enumerate(ranked, 1)
        ]
        return [
            Figure(
                f"clients-{protocol}",
                f"Each client, {protocol}",
                f"{meaning[0].upper()}{meaning[1:]}; sorted, shaded by the number of its samples.",
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
        [_name(told, number), sizes[number], share] for share, number in ranked[:: -(-len(ranked) // MOST_DOTS)]
    ]
    return [
        Figure(
            f"clients-{protocol}",
            f"Each client, {protocol}",
            f"{meaning[0].upper()}{meaning[1:]}, against its samples.",
            "dots",
            (CLIENT, Column("samples", "samples", "whole"), ACCURACY),
            dots,
            x="samples",
            y="accuracy",
        )
    ]


def _name(told: RunTold, client: int) -> str:
    """Short, and with its number where a name of its own was cut."""
    named = words(told.experiment.client_name(client)) if client < told.experiment.clients else str(client)
    return named if len(named) <= LONGEST_CLIENT else f"{named[:LONGEST_CLIENT]}… #{client}"


def _partition(told: RunTold) -> list[Figure]:
    counts, names = told.class_counts, class_names(told)
    if counts is None or len(counts) * len(names) > MOST_ROWS:
        return []
    many = len(counts) * len(names) > MOST_BUBBLES
    clients = [_name(told, client) for client in range(len(counts))]
    rows: list[list[Cell]] = [
        [clients[client], names[label], count]
        for client, row in enumerate(counts)
        for label, count in enumerate(row)
        if count
    ]
    return [
        Figure(
            "partition",
            "Who holds what",
            f"Training samples of each client by class{'' if many else ', as large as the bubble is'}.",
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


def dropped_tables(told: RunTold) -> list[Table]:
    """Who was dropped and why; nothing where nobody was."""
    if not told.absent:
        return []
    by_reason = [[words(reason), f"{count:,}"] for reason, count in told.reasons.most_common(MOST_LISTED)]
    by_client = [
        [_name(told, client), f"{count:,}", str(told.last_seen.get(client, "-"))]
        for client, count in told.absent.most_common(MOST_LISTED)
    ]
    latest = [
        [str(one.get("round", "-")), _name(told, one["client"]), one.get("code", "-"), words(one.get("reason", ""))]
        for one in told.failures[: -MOST_LISTED - 1 : -1]
    ]
    times = counted(sum(told.absent.values()), "time")
    return [
        Table(f"Clients were dropped for a round {times}", ("reason", "times"), by_reason),
        Table("By client", ("client", "dropped", "took part last in round"), by_client),
        Table("The latest", ("round", "client", "code", "reason"), latest, left=4),
    ]
