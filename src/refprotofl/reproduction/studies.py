"""What each table consists of: blocks of runs that are paired, a row a method.

The paper's first table comes in two variants that are never mixed. *standard*: methods that average weights share the
whole model and are scored as one, `global`; the others by `personal`. *reconstruction*: what the paper most likely
measured: all share the adapter alone and are scored straight after local training, `personal_before`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from refprotofl.grids.choices import read_switches
from refprotofl.reproduction import paper

Variant = Literal["standard", "reconstruction"]

TRAIN_ON = ":public.train-on=true"
_FULL = ":share=full"
_AVERAGING = ("fedavg", "fedprox", "fednova", "vhl", "fast")  # those of the paper that share weights
_WITH_CONTROL = ("refprotofl", "local", "lg-fedavg", "fedavg")
_BESIDE = {"local": "local training", "lg-fedavg": "LG-FedAvg"}


@dataclass(frozen=True)
class Row:
    label: str
    asked: str  # as `compare` takes it
    paper: float | None = None  # what the paper prints, in percent

    @property
    def method(self) -> str:
        return read_switches(self.asked)[0]


@dataclass(frozen=True)
class Block:
    """Runs on the same data, partitions and initial weights."""

    dataset: str
    alpha: float
    rows: tuple[Row, ...]
    settings: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.dataset}, alpha {self.alpha:g}"

    @property
    def file_name(self) -> str:
        return f"{self.dataset}-alpha{self.alpha:g}"


@dataclass(frozen=True)
class Study:
    name: str  # of its files
    title: str
    variant: Variant
    blocks: tuple[Block, ...]
    baseline: str  # the label of the row that the others are paired with
    notes: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """The headline's. Of methods that share the whole model `personal` is `global`."""
        return "personal" if self.variant == "standard" else "personal_before"


@dataclass(frozen=True)
class Scope:
    """What the user asked for."""

    datasets: tuple[str, ...]
    alphas: tuple[float, ...]
    methods: tuple[str, ...] = ()  # all if empty


def accuracy(scope: Scope, variant: Variant) -> Study:
    titles = {
        "standard": "whole models shared, `global` or `personal`",
        "reconstruction": "adapters shared, `personal_before`",
    }
    blocks = [
        Block(dataset, alpha, _accuracy_rows(scope, variant, dataset, alpha))
        for alpha in scope.alphas
        for dataset in scope.datasets
    ]
    return Study(
        f"accuracy-{variant}", f"Top-1 accuracy, {variant}: {titles[variant]}", variant, _filled(blocks), "RefProtoFL"
    )


def _accuracy_rows(scope: Scope, variant: Variant, dataset: str, alpha: float) -> tuple[Row, ...]:
    def asked(method: str) -> str:
        return method + _FULL * (variant == "standard" and method in _AVERAGING)

    rows = [
        Row(label, asked(method), paper.TABLE_1.get((dataset, alpha, method)))
        for method, label in paper.METHODS.items()
    ]
    beside = dict(_BESIDE)
    if variant == "reconstruction":
        del beside["lg-fedavg"]  # it is FedAvg with a shared adapter
    rows += [Row(label, method) for method, label in beside.items()]
    labels = {**paper.METHODS, **beside}
    controls = [method for method in _WITH_CONTROL if method in labels] if variant == "standard" else []
    rows += [Row(f"{labels[method]} + public images", asked(method) + TRAIN_ON) for method in controls]
    known = {row.method for row in rows}
    more = [Row(name, name) for name in scope.methods if read_switches(name)[0] not in known]
    return (*_chosen(rows, scope), *more)


def ablation(scope: Scope, variant: Variant) -> Study:
    rows = []
    for suffix, words in (("", ""), (TRAIN_ON, " + public images")):
        for (erpa, apud), printed in paper.TABLE_2.items():
            without = " & ".join(name for name, on in (("ERPA", erpa), ("APUD", apud)) if not on)
            switches = "".join(f":refprotofl.{name}=off" for name, on in (("erpa", erpa), ("apud", apud)) if not on)
            label = "RefProtoFL" + (f" w/o {without}" if without else "") + words
            rows.append(Row(label, f"refprotofl{switches}{suffix}", None if suffix else printed))
    alpha, unprinted = scope.alphas[0], [replace(row, paper=None) for row in rows]
    printed_for = ("cifar10", 0.5)
    blocks = [
        Block(dataset, alpha, _chosen(rows if (dataset, alpha) == printed_for else unprinted, scope))
        for dataset in scope.datasets
    ]
    title = f"Ablation, {variant}: `{'personal' if variant == 'standard' else 'personal_before'}`"
    return Study(f"ablation-{variant}", title, variant, _filled(blocks), "RefProtoFL")


SWEEPS: dict[str, tuple[str, ...]] = {
    "refprotofl.keep": ("0.01", "0.03", "0.1", "0.3", "1.0"),
    "refprotofl.align": ("0.0", "0.1", "1.0", "10.0"),
    "public.coverage": ("0.0", "0.5", "1.0"),
    "public.per-class": ("5", "10", "20", "50"),
}


def sweep(scope: Scope, key: str) -> Study:
    """RefProtoFL with one key at several values, on the first data set and alpha; other values are other partitions.

    That is so for the public set, which is held out of the same images: there only means can be compared.
    """
    rows = tuple(Row(f"{key} = {value}", f"refprotofl:{key}={value}") for value in SWEEPS[key])
    block = Block(scope.datasets[0], scope.alphas[0], rows)
    middle = rows[len(rows) // 2].label
    return Study(f"sweep-{key.replace('.', '-')}", f"RefProtoFL by {key}, `personal`", "standard", (block,), middle)


def compressors(scope: Scope) -> Study:
    """What tests APUD: plain averaging of the adapter, its change compressed to about RefProtoFL's bytes."""
    rows = (
        Row("RefProtoFL", "refprotofl"),
        Row("RefProtoFL w/o ERPA", "refprotofl:refprotofl.erpa=off"),
        Row("LG-FedAvg", "lg-fedavg"),
        Row("LG-FedAvg, top-k", "lg-fedavg:compress.name=top-k:compress.keep=0.1"),
        Row("LG-FedAvg, top-k with error feedback", "lg-fedavg:compress.name=top-k-ef:compress.keep=0.1"),
        Row("LG-FedAvg, STC", "lg-fedavg:compress.name=stc:compress.keep=0.1"),
        Row("LG-FedAvg, QSGD 4 bits", "lg-fedavg:compress.name=qsgd:compress.bits=4"),
    )
    blocks = [Block(dataset, scope.alphas[0], _chosen(rows, scope)) for dataset in scope.datasets]
    title = "Compressed averaging of the adapter, `personal`"
    return Study("compressors", title, "standard", _filled(blocks), "RefProtoFL")


def curves(scope: Scope, rounds: int, every: int) -> Study:
    """Five methods for five times the rounds, to show what the shorter runs leave open."""
    asked = {"refprotofl": "RefProtoFL", "fedavg:share=full": "FedAvg", "fedproto": "FedProto", **_BESIDE}
    rows = _chosen([Row(label, name) for name, label in asked.items()], scope)
    settings = (f"rounds={rounds}", f"evaluate.every={every}")
    block = Block(scope.datasets[0], scope.alphas[0], rows, settings)
    return Study("curves", f"Accuracy by round up to {rounds}", "standard", _filled([block]), "RefProtoFL")


def _chosen(rows: Sequence[Row], scope: Scope) -> tuple[Row, ...]:
    """Those of the methods that the user named."""
    return tuple(row for row in rows if not scope.methods or {row.method, row.asked} & {*scope.methods})


def _filled(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.rows)


def studies_of(what: str, scope: Scope, variants: Sequence[Variant], rounds: int) -> list[Study]:
    """The studies of one table or figure; `rounds` are those of a run in the chosen preset."""
    first = replace(scope, alphas=scope.alphas[:1])
    built: dict[str, list[Study]] = {
        "accuracy": [accuracy(scope, variant) for variant in variants],
        "ablation": [ablation(_within(first, "cifar10", "fashion-mnist"), variant) for variant in variants],
        "communication": [accuracy(first, "standard")],
        "sweeps": [sweep(_within(first, "fashion-mnist"), key) for key in SWEEPS],
        "compressors": [compressors(_within(first, "fashion-mnist", "cifar10"))],
        "curves": [curves(_within(first, "fashion-mnist"), 5 * rounds, max(1, rounds // 4))],
        "tsne-figure": [_without_controls(accuracy(_within(first, "fashion-mnist"), "standard"))],
        "partition-figure": [],
    }
    return built[what]


def _without_controls(study: Study) -> Study:
    return replace(
        study,
        blocks=tuple(
            replace(block, rows=tuple(row for row in block.rows if TRAIN_ON not in row.asked)) for block in study.blocks
        ),
    )


def _within(scope: Scope, *datasets: str) -> Scope:
    """Only these data sets, unless the scope has none of them."""
    common = tuple(dataset for dataset in datasets if dataset in scope.datasets)
    return replace(scope, datasets=common or scope.datasets[:1])
