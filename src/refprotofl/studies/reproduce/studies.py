"""The numbers that the paper prints, in percent.

What each table consists of: blocks of runs that are paired, a row a method.

The paper's tables come in two variants that are never mixed. *standard*: methods that average weights share the whole
model and are scored by it, `global`; the others by `personal`, which is the same where all clients hold one model.
*reconstruction*: what the paper most likely measured: all share the adapter alone and are scored straight after local
training, `personal_before`.

The runs that studies need, each once, and in which setting.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from refprotofl.core.errors import InputError
from refprotofl.core.escaping import for_file_name
from refprotofl.evaluation.protocols import check_protocol
from refprotofl.experiment.presets import load_experiment, set_keys
from refprotofl.report.comparable import check_settings
from refprotofl.studies.reproduce.verdicts import PRESET, Setting
from refprotofl.studies.results import Result
from refprotofl.studies.rows import Row as StudyRow
from refprotofl.studies.rows import key_of, read_switches
from refprotofl.studies.trials import Base, Trial, unique

DATASETS = ("mnist", "fashion-mnist", "cifar10", "cifar100")
ALPHAS = (0.5, 100.0)
METHODS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fednova": "FedNova",
    "fedproto": "FedProto",
    "vhl": "VHL",
    "fedgh": "FedGH",
    "fast": "FAST",
    "refprotofl": "RefProtoFL",
}

_TABLE_1 = {
    ("mnist", 0.5): (88.18, 87.41, 87.87, 87.68, 86.83, 87.29, 75.19, 88.46),
    ("mnist", 100.0): (97.83, 96.90, 97.82, 98.33, 97.08, 97.87, 86.74, 98.25),
    ("fashion-mnist", 0.5): (73.72, 70.84, 73.70, 73.82, 72.62, 73.71, 63.03, 74.21),
    ("fashion-mnist", 100.0): (85.10, 83.95, 84.91, 85.96, 84.29, 85.74, 76.44, 85.76),
    ("cifar10", 0.5): (43.93, 42.70, 43.72, 44.33, 40.30, 43.38, 35.14, 45.51),
    ("cifar10", 100.0): (52.05, 50.37, 51.73, 56.05, 48.84, 52.94, 45.07, 56.36),
    ("cifar100", 0.5): (14.56, 12.81, 14.46, 16.28, 13.24, 14.16, 9.97, 16.50),
    ("cifar100", 100.0): (16.75, 8.74, 17.22, 18.42, 15.57, 14.55, 12.13, 20.02),
}
_AVERAGE = (59.01, 56.71, 58.93, 60.11, 57.35, 58.71, 50.46, 60.63)

TABLE_1 = {
    (dataset, alpha, method): value
    for (dataset, alpha), values in _TABLE_1.items()
    for method, value in zip(METHODS, values, strict=True)
}
AVERAGE = dict(zip(METHODS, _AVERAGE, strict=True))
# Of CIFAR-10 with alpha = 0.5, by (erpa, apud).
TABLE_2 = {(True, True): 45.51, (False, True): 44.62, (True, False): 45.37, (False, False): 44.54}


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
    searched: frozenset[str] = frozenset()  # keys whose switches give way to a search and to the user

    @property
    def method(self) -> str:
        return read_switches(self.asked)[0]

    @property
    def switched(self) -> set[str]:
        """The keys that its switches set."""
        return {key_of(switch) for switch in read_switches(self.asked)[1]}

    def without(self, keys: set[str]) -> str:
        """What is asked, less the switches of these keys."""
        method, switches = read_switches(self.asked)
        return ":".join([method, *(switch for switch in switches if key_of(switch) not in keys)])


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
        return f"{for_file_name(self.dataset)}-alpha{self.alpha:g}"

    def unprinted(self) -> "Block":
        """Without what the paper prints."""
        return replace(self, rows=tuple(replace(row, paper=None) for row in self.rows))


@dataclass(frozen=True)
class Study:
    name: str  # of its files
    title: str
    variant: Variant
    blocks: tuple[Block, ...]
    baseline: str  # the label of the row that the others are paired with
    notes: tuple[str, ...] = ()
    equal_bytes: bool = False  # its rows are meant to send as much as the baseline: by how much they do is shown
    references: tuple[str, ...] = ()  # whose bytes the others' are set against: the first's, the cheapest near it
    swept: str = ""  # the key that the rows differ in, if it is one and takes numbers
    scored: str = ""  # the protocol, where it is not the variant's

    @property
    def protocol(self) -> str:
        """The headline's."""
        return self.scored or ("personal" if self.variant == "standard" else "personal_before")


@dataclass(frozen=True)
class Scope:
    """What the user asked for."""

    datasets: tuple[str, ...]
    alphas: tuple[float, ...]
    methods: tuple[str, ...] = ()  # all if empty


_TITLES: dict[Variant, str] = {
    "standard": "standard variant (whole models are shared where weights are averaged)",
    "reconstruction": "reconstruction of the paper's setting (adapters are shared, scored before aggregation)",
}
_SAME = "LG-FedAvg is not listed: with a shared adapter FedAvg is the same"


def accuracy(scope: Scope, variant: Variant) -> Study:
    blocks = [
        Block(dataset, alpha, _accuracy_rows(scope, variant, dataset, alpha))
        for alpha in scope.alphas
        for dataset in scope.datasets
    ]
    title, notes = f"Top-1 accuracy, {_TITLES[variant]}", (_SAME,) if variant == "reconstruction" else ()
    return Study(f"accuracy-{variant}", title, variant, _filled(blocks), "RefProtoFL", notes)


def _accuracy_rows(scope: Scope, variant: Variant, dataset: str, alpha: float) -> tuple[Row, ...]:
    def asked(method: str) -> str:
        return method + _FULL * (variant == "standard" and method in _AVERAGING)

    printed = TABLE_1
    rows = [Row(label, asked(name), printed.get((dataset, alpha, name))) for name, label in METHODS.items()]
    beside = {name: label for name, label in _BESIDE.items() if variant == "standard" or name != "lg-fedavg"}
    rows += [Row(label, name) for name, label in beside.items()]
    labels = {**METHODS, **beside}
    rows += [Row(f"{labels[name]} + public images", asked(name) + TRAIN_ON) for name in _WITH_CONTROL if name in labels]
    return (*chosen(rows, scope), *_added(rows, scope, variant))


def _added(rows: Sequence[Row], scope: Scope, variant: Variant) -> list[Row]:
    """What the user named beyond the paper's methods; in the reconstruction none that says what is shared."""
    known = {name for row in rows for name in (row.method, row.asked)}
    more = [Row(name, name) for name in scope.methods if name not in known]
    if variant == "standard":
        return more
    return [row for row in more if row.method != "lg-fedavg" and "share" not in row.switched]


def ablation(scope: Scope, variant: Variant) -> Study:
    rows = []
    for suffix, words in (("", ""), (TRAIN_ON, " + public images")):
        for (erpa, apud), printed in TABLE_2.items():
            without = " & ".join(name for name, on in (("ERPA", erpa), ("APUD", apud)) if not on)
            switches = "".join(f":refprotofl.{name}=off" for name, on in (("erpa", erpa), ("apud", apud)) if not on)
            label = "RefProtoFL" + (f" w/o {without}" if without else "") + words
            rows.append(Row(label, f"refprotofl{switches}{suffix}", None if suffix else printed))
    alpha, printed_for = scope.alphas[0], ("cifar10", 0.5)
    blocks = [Block(dataset, alpha, chosen(rows, scope)) for dataset in scope.datasets]
    blocks = [block if (block.dataset, alpha) == printed_for else block.unprinted() for block in blocks]
    return Study(f"ablation-{variant}", f"Ablation, {_TITLES[variant]}", variant, _filled(blocks), "RefProtoFL")


SWEEPS: dict[str, tuple[str, ...]] = {
    "refprotofl.keep": ("0.01", "0.03", "0.1", "0.3", "1.0"),
    "refprotofl.align": ("0.0", "0.1", "1.0", "10.0"),
    "public.coverage": ("0.0", "0.5", "1.0"),
    "public.per-class": ("5", "10", "20", "50"),
}
_BASELINES = {"refprotofl.keep": "0.1", "refprotofl.align": "1.0", "public.coverage": "1.0", "public.per-class": "50"}


_OTHER_PARTITIONS = "The public set is taken out of the training images: other sizes of it leave other partitions"


def sweep(scope: Scope, key: str) -> Study:
    """RefProtoFL with one key at several values, on the first data set and alpha."""
    rows = chosen([Row(f"{key} = {value}", f"refprotofl:{key}={value}") for value in SWEEPS[key]], scope)
    blocks = [Block(scope.datasets[0], scope.alphas[0], rows)]
    return Study(
        name=f"sweep-{key.replace('.', '-')}",
        title=f"RefProtoFL by {key}",
        variant="standard",
        blocks=_filled(blocks),
        baseline=f"{key} = {_BASELINES[key]}",
        notes=(_OTHER_PARTITIONS,) if key.startswith("public.") else (),
        swept=key,
    )


def compressors(scope: Scope) -> Study:
    """What tests APUD: plain averaging of the adapter, its change compressed to RefProtoFL's bytes.

    So with the CNN, but for STC, whose signs cannot fill them; the table says how much each sends.
    """
    rows = (
        Row("RefProtoFL", "refprotofl"),
        Row("RefProtoFL w/o ERPA", "refprotofl:refprotofl.erpa=off"),
        Row("LG-FedAvg", "lg-fedavg"),
        Row("LG-FedAvg, top-k", "lg-fedavg:compress.name=top-k:compress.keep=0.118"),
        Row("LG-FedAvg, top-k with error feedback", "lg-fedavg:compress.name=top-k-ef:compress.keep=0.118"),
        Row("LG-FedAvg, STC", "lg-fedavg:compress.name=stc:compress.keep=0.3"),
        Row("LG-FedAvg, QSGD 4 bits", "lg-fedavg:compress.name=qsgd:compress.bits=4"),
    )
    blocks = [Block(dataset, scope.alphas[0], chosen(rows, scope)) for dataset in scope.datasets]
    title = "Compressed averaging of the adapter"
    return Study("compressors", title, "standard", _filled(blocks), "RefProtoFL", equal_bytes=True)


def curves(scope: Scope, rounds: int, every: int) -> Study:
    """Five methods for five times the rounds, to show what the shorter runs leave open."""
    asked = {"refprotofl": "RefProtoFL", "fedavg:share=full": "FedAvg", "fedproto": "FedProto", **_BESIDE}
    rows = chosen([Row(label, name) for name, label in asked.items()], scope)
    settings = (f"rounds={rounds}", f"evaluate.every={every}")
    block = Block(scope.datasets[0], scope.alphas[0], rows, settings)
    return Study("curves", f"Accuracy after {rounds} rounds", "standard", _filled([block]), "RefProtoFL")


def chosen(rows: Sequence[Row], scope: Scope) -> tuple[Row, ...]:
    """Those of the methods that the user named."""
    return tuple(row for row in rows if not scope.methods or {row.method, row.asked} & {*scope.methods})


def _filled(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.rows)


def studies_of(what: str, scope: Scope, rounds: int) -> list[Study]:
    """The studies of one table or figure; `rounds` are those of a run in the chosen preset."""
    first = replace(scope, alphas=scope.alphas[:1])
    fashion = _within(first, "fashion-mnist")
    match what:
        case "accuracy":
            return [accuracy(scope, "standard"), accuracy(scope, "reconstruction")]
        case "ablation":
            both = _within(first, "cifar10", "fashion-mnist")
            return [ablation(both, "standard"), ablation(both, "reconstruction")]
        case "communication":
            return [accuracy(first, "standard")]
        case "sweeps":
            return [sweep(fashion, key) for key in SWEEPS]
        case "compressors":
            return [compressors(_within(first, "fashion-mnist", "cifar10"))]
        case "curves":
            return [curves(fashion, 5 * rounds, max(1, rounds // 4))]
        case "tsne-figure":
            return [_without_controls(accuracy(fashion, "standard"))]
        case _:  # the partition's figure takes no runs
            return []


def scored_by(protocol: str, studies: Sequence[Study]) -> list[Study]:
    """The same runs by another accuracy than the paper's, so without its numbers and its way of scoring."""
    check_protocol(protocol)
    own = [study for study in studies if study.scored]
    if own:
        found = [study for study in own if study.scored == protocol]
        if not found:
            raise InputError(f"--protocol {protocol}: allowed are {', '.join(study.scored for study in own)} here.")
        return found
    return [
        replace(
            study,
            name=f"{study.name}-{protocol}",
            title=f"{study.title}, by {protocol} accuracy",
            blocks=tuple(block.unprinted() for block in study.blocks),
            scored=protocol,
        )
        for study in studies
        if study.variant == "standard"
    ]


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


Tuned = Mapping[str, Mapping[str, Sequence[str]]]  # settings by data set, then by method as it was asked for
Results = Mapping[str, Result]  # by the hash of what was asked for


@dataclass(frozen=True)
class Grid:
    """`tuned` has a say in the standard variant alone: the reconstruction is as the paper has it."""

    studies: tuple[Study, ...]
    preset: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    tuned: Tuned = field(default_factory=dict)
    chosen_on: Mapping[str, str] = field(default_factory=dict)  # the data set that a search was on, where it is another
    against: str = ""  # the label of the row that others are paired with, where a study has it and its own is another
    margin: float | None = None  # of non-inferiority, as a share of 1

    @property
    def setting(self) -> Setting:
        """How it compares with the paper's."""
        if self.preset != PRESET:
            return "smaller"
        hashes = {load_experiment(None, self.preset, settings).hash for settings in ((), self.settings)}
        return "paper's" if len(hashes) == 1 else "changed"

    def cells(self) -> list[Trial]:
        """Seed by seed, so that an interrupted grid is complete for its first seeds."""
        return unique(
            replace(self.cell(study, block, row, seed), name=f"{block.label}: {row.label}")
            for seed in self.seeds
            for study, block, row in self.rows()
        )

    def rows(self) -> Iterator[tuple[Study, Block, Row]]:
        for study in self.studies:
            for block in study.blocks:
                for row in block.rows:
                    yield study, block, row

    def cell(self, study: Study, block: Block, row: Row, seed: int) -> Trial:
        """Under the row's label."""
        own = [f"dataset={json.dumps(block.dataset)}", f"alpha={block.alpha:g}", *block.settings]
        tuned = self.tuned_of(study, block, row)
        said = set_keys(self.settings) & row.searched  # a rate that gives way to a search does to the user, too
        asked = row.without(said | {key_of(one) for one in tuned})
        base = Base(None, self.preset, (*tuned, *self.settings, *own))
        return base.trial(StudyRow(row.label, asked), seed, self.out / "runs")

    def tuned_of(self, study: Study, block: Block, row: Row) -> tuple[str, ...]:
        """What a search chose for the method: the entry that has most of the row's switches and no others.

        Without what the user sets, or the row, unless it leaves that to a search.
        """
        if study.variant != "standard":
            return ()
        method, switches = read_switches(row.asked)
        fits: dict[int, Sequence[str]] = {}
        for name, settings in self.tuned.get(block.dataset, {}).items():
            known, needed = read_switches(name)
            if known == method and {*needed} <= {*switches}:
                fits[len(needed)] = settings
        fixed = (row.switched - row.searched) | set_keys(self.settings)
        return tuple(one for one in (fits[max(fits)] if fits else ()) if key_of(one) not in fixed)

    def may_differ(self, study: Study, block: Block) -> set[str]:
        """The keys that a block's rows are named by, and what a search chose for their training."""
        chosen = {key_of(one) for row in block.rows for one in self.tuned_of(study, block, row)}
        return {key for row in block.rows for key in row.switched} | {key for key in chosen if key.startswith("train.")}

    def check(self) -> None:
        """InputError where rows of a block would not be comparable, before anything is run."""
        for study in self.studies:
            for block in study.blocks:
                cells = [self.cell(study, block, row, self.seeds[0]) for row in block.rows]
                check_settings([cell.experiment.plain() for cell in cells], self.may_differ(study, block))

    def done(self, study: Study, block: Block, results: Results) -> Iterator[tuple[Trial, Result]]:
        """The finished runs of a block, under their rows' labels."""
        for row in block.rows:
            for seed in self.seeds:
                cell = self.cell(study, block, row, seed)
                result = results.get(cell.experiment.hash)
                if result is not None:
                    yield cell, result
