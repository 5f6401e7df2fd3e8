"""Studies behind the paper's tables and figures: printed numbers, rows, variants, and the runs that they need.

A study is a list of blocks; the runs of a block are paired by seed, one row per method.

The paper's tables come in two variants that are never mixed. *standard*: methods that average weights share the whole
model and are scored by it, `global`; the others by `personal`, which is the same where all clients hold one model.
*reconstruction*: what the paper most likely measured: all share the adapter alone and are scored straight after local
training, `personal_before`.

A grid lists the runs of several studies, each run once, and the settings they are run with.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from refprotofl.core import InputError, for_file_name
from refprotofl.evaluation import check_protocol
from refprotofl.experiment import load_experiment, set_keys
from refprotofl.methods import find_method
from refprotofl.report.comparable import check_settings
from refprotofl.studies.reproduce.verdicts import PRESET, Setting
from refprotofl.studies.results import Result
from refprotofl.studies.rows import Row as StudyRow
from refprotofl.studies.rows import best_fit, key_of, read_row, read_switches, tuned_settings
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
# CIFAR-10 with alpha = 0.5, by (erpa, apud).
TABLE_2 = {(True, True): 45.51, (False, True): 44.62, (True, False): 45.37, (False, False): 44.54}


Variant = Literal["standard", "reconstruction"]

TRAIN_ON = ":public.train-on=true"
_FULL, _ADAPTER = ":share=full", ":share=adapter"
_AVERAGING = ("fedavg", "fedprox", "fednova", "vhl", "fast")  # those of the paper that share weights
_WITH_CONTROL = ("refprotofl", "local", "lg-fedavg", "fedavg")
_EXTRA_METHODS = {"local": "local training", "lg-fedavg": "LG-FedAvg"}


@dataclass(frozen=True)
class Row:
    label: str
    asked: str  # method and switches, as `compare` takes them
    paper: float | None = None  # what the paper prints, in percent
    searched: frozenset[str] = frozenset()  # keys whose switches a search or the user may override

    @property
    def method(self) -> str:
        return read_switches(self.asked)[0]

    @property
    def switched(self) -> set[str]:
        """The keys that the row's switches set."""
        return {key_of(switch) for switch in read_switches(self.asked)[1]}

    def without(self, keys: set[str]) -> str:
        """Return `asked` without the switches of these keys."""
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
        """Return the block without the paper's values."""
        return replace(self, rows=tuple(replace(row, paper=None) for row in self.rows))


@dataclass(frozen=True)
class Study:
    name: str  # stem of the file names
    title: str
    variant: Variant
    blocks: tuple[Block, ...]
    baseline: str  # label of the row that the others are paired with
    notes: tuple[str, ...] = ()
    equal_bytes: bool = False  # rows are meant to send as much as the baseline; the table shows the ratio
    references: tuple[str, ...] = ()  # rows whose bytes others are compared with: the first, the cheapest near it
    swept: str = ""  # the one numeric key that the rows differ in, if any
    scored: str = ""  # protocol of the headline; the variant's if empty

    @property
    def protocol(self) -> str:
        """The protocol of the headline."""
        return self.scored or ("personal" if self.variant == "standard" else "personal_before")


@dataclass(frozen=True)
class Scope:
    """Data sets, alphas and methods that the user asked for."""

    datasets: tuple[str, ...]
    alphas: tuple[float, ...]
    methods: tuple[str, ...] = ()  # all if empty; as in compare, `name = method:switches` among them
    labels: tuple[str, ...] = ()  # of rows; all if empty

    @property
    def rows(self) -> tuple[StudyRow, ...]:
        return tuple(map(read_row, self.methods))


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
        return method + (_FULL if variant == "standard" else _ADAPTER) * (method in _AVERAGING)

    printed = TABLE_1
    rows = [Row(label, asked(name), printed.get((dataset, alpha, name))) for name, label in METHODS.items()]
    extra = {name: label for name, label in _EXTRA_METHODS.items() if variant == "standard" or name != "lg-fedavg"}
    rows += [Row(label, name) for name, label in extra.items()]
    labels = {**METHODS, **extra}
    rows += [Row(f"{labels[name]} + public images", asked(name) + TRAIN_ON) for name in _WITH_CONTROL if name in labels]
    return (*chosen(rows, scope), *_added(rows, scope, variant))


def _added(rows: Sequence[Row], scope: Scope, variant: Variant) -> list[Row]:
    """Rows for methods that the user named beyond the paper's; the reconstruction excludes those that set `share`."""
    known = {name for row in rows for name in (row.method, row.asked)}
    for one in scope.rows:
        if one.asked in known and one.name != one.asked:
            raise InputError(f"--methods {one.name} = {one.asked}: this row has a name already, leave yours out.")
    more = [Row(one.name, one.asked) for one in scope.rows if one.asked not in known]
    more = [row for row in more if not scope.labels or row.label in scope.labels]
    if variant == "standard":
        return more
    more = [row for row in more if row.method != "lg-fedavg" and "share" not in row.switched]
    return [replace(row, asked=row.asked + _ADAPTER * _shares_all(row.method)) for row in more]


def _shares_all(method: str) -> bool:
    return find_method(method).auto_share == "full"


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
    """Build the test of APUD: averaged adapters, the change compressed to RefProtoFL's bytes.

    The sizes agree for the CNN, except for STC, whose signs take fewer bytes; the table has each row's bytes.
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
    """Build a study of five methods over five times the rounds, to show whether shorter runs had converged."""
    asked = {"refprotofl": "RefProtoFL", "fedavg:share=full": "FedAvg", "fedproto": "FedProto", **_EXTRA_METHODS}
    rows = chosen([Row(label, name) for name, label in asked.items()], scope)
    settings = (f"rounds={rounds}", f"evaluate.every={every}")
    block = Block(scope.datasets[0], scope.alphas[0], rows, settings)
    return Study("curves", f"Accuracy after {rounds} rounds", "standard", _filled([block]), "RefProtoFL")


def chosen(rows: Sequence[Row], scope: Scope) -> tuple[Row, ...]:
    """Return the rows that the user named, by method or by label; all if none is named."""
    named = {one.asked for one in scope.rows}
    return tuple(
        row
        for row in rows
        if (not named or {row.method, row.asked} & named) and (not scope.labels or row.label in scope.labels)
    )


def _filled(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.rows)


def studies_of(table: str, scope: Scope, rounds: int) -> list[Study]:
    """The studies of one table or figure; `rounds` are those of a run in the chosen preset."""
    first = replace(scope, alphas=scope.alphas[:1])
    fashion = _within(first, "fashion-mnist")
    match table:
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
    """Return studies of the same runs by another accuracy than the paper's, without its numbers."""
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
    """Restrict the scope to these data sets; to its first if it has none of them."""
    common = tuple(dataset for dataset in datasets if dataset in scope.datasets)
    return replace(scope, datasets=common or scope.datasets[:1])


Tuned = Mapping[str, Mapping[str, Sequence[str]]]  # settings by data set, then by method with its switches
Ends = Mapping[str, Mapping[str, Sequence[str]]]  # keys by data set, then by method with its switches
Results = Mapping[str, Result]  # by experiment hash


@dataclass(frozen=True)
class Grid:
    """The runs of several studies. `tuned` applies to the standard variant only; the other follows the paper."""

    studies: tuple[Study, ...]
    preset: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    tuned: Tuned = field(default_factory=dict)
    chosen_on: Mapping[str, str] = field(default_factory=dict)  # data set -> data set of its search, if another
    ends: Ends = field(default_factory=dict)  # keys whose chosen value is at an end of its grid
    against: str = ""  # label of the row that others are paired with; the study's baseline if empty or absent
    margin: float | None = None  # of non-inferiority, as a share of 1

    @property
    def setting(self) -> Setting:
        """The grid's setting relative to the paper's; models do not depend on how often they are evaluated."""
        if self.preset != PRESET:
            return "smaller"
        asked = ((), tuple(one for one in self.settings if key_of(one) != "evaluate.every"))
        hashes = {load_experiment(None, self.preset, settings).hash for settings in asked}
        return "paper's" if len(hashes) == 1 else "changed"

    def cells(self) -> list[Trial]:
        """List the trials seed by seed, so that an interrupted grid is complete for its first seeds."""
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
        """Return the trial of a row and seed, named by the row's label."""
        own = [f"dataset={json.dumps(block.dataset)}", f"alpha={block.alpha:g}", *block.settings]
        tuned = self.tuned_of(study, block, row)
        overridden = set_keys(self.settings) & row.searched  # a rate that a search may override, the user may too
        asked = row.without(overridden | {key_of(one) for one in tuned})
        base = Base(None, self.preset, (*tuned, *self.settings, *own))
        return base.trial(StudyRow(row.label, asked), seed, self.out / "runs")

    def tuned_of(self, study: Study, block: Block, row: Row) -> tuple[str, ...]:
        """Return the settings that a search chose for a row.

        Keys that the user or the row sets are left out, unless the row leaves them to a search.
        """
        if study.variant != "standard":
            return ()
        fixed = (row.switched - row.searched) | set_keys(self.settings)
        return tuned_settings(row.asked, self.tuned.get(block.dataset, {}), fixed)

    def at_an_end(self, study: Study, block: Block, row: Row) -> tuple[str, ...]:
        """Return those settings of a row that a search chose at an end of their grid."""
        name = best_fit(row.asked, self.tuned.get(block.dataset, {}))
        ends = self.ends.get(block.dataset, {}).get(name or "", ())
        return tuple(one for one in self.tuned_of(study, block, row) if key_of(one) in ends)

    def may_differ(self, study: Study, block: Block) -> set[str]:
        """The keys that a block's rows are named by, and the training keys that a search chose."""
        chosen = {key_of(one) for row in block.rows for one in self.tuned_of(study, block, row)}
        return {key for row in block.rows for key in row.switched} | {key for key in chosen if key.startswith("train.")}

    def check(self) -> None:
        """Raise InputError where rows of a block would not be comparable, before anything is run."""
        for study in self.studies:
            for block in study.blocks:
                cells = [self.cell(study, block, row, self.seeds[0]) for row in block.rows]
                check_settings([cell.experiment.plain() for cell in cells], self.may_differ(study, block))

    def done(self, study: Study, block: Block, results: Results) -> Iterator[tuple[Trial, Result]]:
        """Yield the finished runs of a block, named by their rows' labels."""
        for row in block.rows:
            for seed in self.seeds:
                cell = self.cell(study, block, row, seed)
                result = results.get(cell.experiment.hash)
                if result is not None:
                    yield cell, result
