"""Which runs each table is made of."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refprotofl.cli.reproduce import Sizes, TableName, Variants
from refprotofl.core.errors import InputError
from refprotofl.experiment.presets import PRESETS, load_experiment
from refprotofl.studies.reproduce import studies
from refprotofl.studies.reproduce.our_studies import OURS, our_studies
from refprotofl.studies.reproduce.request import TABLES, VARIANTS, Request
from refprotofl.studies.reproduce.studies import SWEEPS, Grid, Row, Scope, Study, Variant, scored_by, studies_of
from refprotofl.studies.rows import read_switches

ALL = Scope(studies.DATASETS, studies.ALPHAS)
EIGHT = ["FedAvg", "FedProx", "FedNova", "FedProto", "VHL", "FedGH", "FAST", "RefProtoFL"]


def study(what: str, scope: Scope = ALL, variant: Variant = "standard") -> Study:
    return next(one for one in studies_of(what, scope, rounds=20) if one.variant == variant)


def rows(what: str, scope: Scope = ALL, variant: Variant = "standard") -> dict[str, Row]:
    return {row.label: row for row in study(what, scope, variant).blocks[0].rows}


def test_the_command_offers_what_there_is() -> None:
    assert [*TableName] == [*TABLES, *OURS, "all"]
    assert [*Variants] == [*VARIANTS, "both"]
    assert [*Sizes] == [*PRESETS]


def test_the_first_table_has_the_papers_methods_and_the_controls() -> None:
    found = rows("accuracy")
    assert [*found][:8] == EIGHT
    assert [*found][8:] == [
        *("local training", "LG-FedAvg", "RefProtoFL + public images", "local training + public images"),
        *("LG-FedAvg + public images", "FedAvg + public images"),
    ]
    assert found["FedAvg + public images"].asked == "fedavg:share=full:public.train-on=true"
    blocks = study("accuracy").blocks
    assert {(block.dataset, block.alpha) for block in blocks} == {
        (name, alpha) for name in studies.DATASETS for alpha in (0.5, 100)
    }
    assert [row.paper for row in blocks[0].rows][:8] == [88.18, 87.41, 87.87, 87.68, 86.83, 87.29, 75.19, 88.46]
    assert {row.paper for row in blocks[0].rows[8:]} == {None}


def test_the_variants_share_and_score_each_in_its_own_way(grid_of: Callable[..., Grid]) -> None:
    shares = {}
    for variant in VARIANTS:
        one = study("accuracy", ALL, variant)
        grid = grid_of(one)
        block = one.blocks[0]
        experiments = {row.label: grid.cell(one, block, row, 0).experiment for row in block.rows}
        shares[variant] = {label: experiments[label].share for label in EIGHT}
    full = {label for label, share in shares["standard"].items() if share == "full"}
    assert full == {"FedAvg", "FedProx", "FedNova", "VHL", "FAST"}
    assert {*shares["reconstruction"].values()} == {"adapter"}
    (added,) = study("accuracy", Scope(("mnist",), (0.5,), ("fedproc",)), "reconstruction").blocks[0].rows
    assert (added.label, added.asked) == ("fedproc", "fedproc:share=adapter")
    named = study("accuracy", Scope(("mnist",), (0.5,), ("local", "By logits = feddf:feddf.upload=logits")))
    assert [(row.label, row.asked) for row in named.blocks[0].rows] == [
        ("local training", "local"),
        ("local training + public images", "local:public.train-on=true"),
        ("By logits", "feddf:feddf.upload=logits"),
    ]
    with pytest.raises(InputError, match="Alone = local: this row has a name already"):
        study("accuracy", Scope(("mnist",), (0.5,), ("Alone = local",)))
    assert study("accuracy").protocol == "personal"
    reconstruction = study("accuracy", ALL, "reconstruction")
    assert reconstruction.protocol == "personal_before"
    assert "FedAvg is the same" in reconstruction.notes[0]
    labels = [*rows("accuracy", ALL, "reconstruction")][8:]
    assert labels == [
        "local training",
        *(f"{name} + public images" for name in ("RefProtoFL", "local training", "FedAvg")),
    ]


def test_the_second_table_switches_both_parts_with_and_without_public_images() -> None:
    found = rows("ablation")
    assert [row.paper for row in found.values()] == [45.51, 44.62, 45.37, 44.54, None, None, None, None]
    both = "refprotofl:refprotofl.erpa=off:refprotofl.apud=off"
    assert found["RefProtoFL w/o ERPA & APUD"].asked == both
    assert found["RefProtoFL w/o ERPA & APUD + public images"].asked == f"{both}:public.train-on=true"
    first, second = study("ablation").blocks
    assert ((first.dataset, first.alpha), (second.dataset, second.alpha)) == (("cifar10", 0.5), ("fashion-mnist", 0.5))
    assert {row.paper for row in second.rows} == {None}  # the paper's is of CIFAR-10 alone
    assert {row.paper for row in study("ablation", Scope(("cifar10",), (100.0,))).blocks[0].rows} == {None}


def test_a_sweep_moves_one_key_and_starts_from_a_row_that_it_has() -> None:
    found = studies_of("sweeps", ALL, rounds=20)
    assert [one.swept for one in found] == [*SWEEPS]
    for one in found:
        labels = [row.label for block in one.blocks for row in block.rows]
        assert labels == [f"{one.swept} = {value}" for value in SWEEPS[one.swept]]
        assert one.baseline in labels
        assert {key for block in one.blocks for row in block.rows for key in row.switched} == {one.swept}


def test_curves_are_five_times_as_long_and_the_map_leaves_controls_out() -> None:
    (block,) = study("curves").blocks
    assert (block.dataset, block.settings) == ("fashion-mnist", ("rounds=100", "evaluate.every=5"))
    (block,) = study("tsne-figure").blocks
    assert (block.dataset, block.alpha) == ("fashion-mnist", 0.5)
    assert [row.label for row in block.rows] == [*EIGHT, "local training", "LG-FedAvg"]
    assert studies_of("partition-figure", ALL, rounds=20) == []


@pytest.mark.parametrize(
    ("methods", "standard", "reconstruction"),
    [
        (["fedproto"], ["FedProto"], ["FedProto"]),
        (["fedavg"], ["FedAvg", "FedAvg + public images"], ["FedAvg", "FedAvg + public images"]),
        (["fedper"], ["fedper"], ["fedper"]),
        (["fedprox:fedprox.mu=1"], ["fedprox:fedprox.mu=1"], ["fedprox:fedprox.mu=1"]),
        (["lg-fedavg"], ["LG-FedAvg", "LG-FedAvg + public images"], []),
        (["fedavg:share=full"], ["FedAvg"], []),
        (["fedavg:share=adapter"], ["fedavg:share=adapter"], ["FedAvg"]),
        (["fedproc"], ["fedproc"], ["fedproc"]),
    ],
)
def test_only_the_methods_that_are_named(methods: list[str], standard: list[str], reconstruction: list[str]) -> None:
    scope = Scope(("mnist",), (0.5,), tuple(methods))
    for variant, labels in (("standard", standard), ("reconstruction", reconstruction)):
        found = next(one for one in studies_of("accuracy", scope, 20) if one.variant == variant)
        assert [row.label for block in found.blocks for row in block.rows] == labels


def test_a_file_is_named_by_what_every_system_takes() -> None:
    found = study("accuracy", Scope(("some/where.npz",), (0.5,)))
    assert found.blocks[0].file_name == "some-where.npz-alpha0.5"


TUNED = {
    "mnist": {
        "fedavg": ["train.lr=0.1"],
        "fedavg:share=full": ["train.lr=0.2"],
        "fedavg:share=full:public.train-on=true": ["train.lr=0.3"],
        "fedavg:share=adapter": ["train.lr=0.9"],
        "refprotofl": ["refprotofl.align=10.0", "train.lr=0.5"],
    }
}
MNIST = Scope(("mnist",), (0.5,))


def tuned(grid: Grid, one: Study, label: str) -> Any:
    row = next(row for row in one.blocks[0].rows if row.label == label)
    return grid.tuned_of(one, one.blocks[0], row), grid.cell(one, one.blocks[0], row, 0).experiment


def test_what_a_search_chose_goes_to_the_rows_that_it_was_for(grid_of: Callable[..., Grid]) -> None:
    one = study("accuracy", MNIST)
    grid = grid_of(one, tuned=TUNED)
    assert tuned(grid, one, "FedAvg")[0] == ("train.lr=0.2",)  # the entry with most of its switches
    assert tuned(grid, one, "FedAvg + public images")[0] == ("train.lr=0.3",)
    assert tuned(grid, one, "FedProx")[0] == ()
    chosen, experiment = tuned(grid, one, "RefProtoFL + public images")
    assert chosen == ("refprotofl.align=10.0", "train.lr=0.5")
    assert (experiment.train.lr, experiment.refprotofl.align) == (0.5, 10.0)
    elsewhere = study("accuracy", Scope(("cifar10",), (0.5,)))
    assert tuned(grid_of(elsewhere, tuned=TUNED), elsewhere, "FedAvg")[0] == ()


def test_the_reconstruction_is_never_tuned(grid_of: Callable[..., Grid]) -> None:
    one = study("accuracy", MNIST, "reconstruction")
    assert tuned(grid_of(one, tuned=TUNED), one, "FedAvg")[0] == ()


def test_what_the_user_or_the_row_sets_wins_over_the_search(grid_of: Callable[..., Grid]) -> None:
    one = study("accuracy", MNIST)
    chosen, experiment = tuned(grid_of(one, tuned=TUNED, settings=("train.lr=0.07",)), one, "RefProtoFL")
    assert chosen == ("refprotofl.align=10.0",)
    assert experiment.train.lr == 0.07
    swept = next(one for one in studies_of("sweeps", MNIST, 20) if one.swept == "refprotofl.align")
    chosen, experiment = tuned(grid_of(swept, tuned=TUNED), swept, "refprotofl.align = 0.1")
    assert (chosen, experiment.refprotofl.align) == (("train.lr=0.5",), 0.1)


@pytest.mark.parametrize("dataset", ["fashion-mnist", "cifar10"])
def test_every_rival_has_a_search_of_its_own(dataset: str) -> None:
    """Its rate is searched for the same switches."""
    path = Path(__file__).parents[3] / "studies" / "tuning" / f"{dataset}-compressed.toml"
    searched = [read_switches(name) for name in tomllib.loads(path.read_text())["methods"]]
    rows = [row for row in our_studies("rivals", ALL)[0].blocks[0].rows if "compress.name" in row.switched]
    assert len(rows) == len(searched) == 8
    for row in rows:
        method, switches = read_switches(row.asked)
        assert sum(known == method and {*needed} <= {*switches} for known, needed in searched) == 1, row.label


def test_fedavg_is_fine_tuned_as_thin_is() -> None:
    shared = our_studies("headline", ALL)[0].blocks[0].rows
    by_label = {row.label: row for row in shared}
    grid = Grid(tuple(our_studies("headline", MNIST)), "small", (), (0,), Path("out"))
    study, block = grid.studies[0], grid.studies[0].blocks[0]

    def finetune(label: str) -> dict[str, Any]:
        return grid.cell(study, block, by_label[label], 0).experiment.finetune.model_dump()

    assert finetune("FedAvg, fine-tuned") == finetune("FedAvg + public images, fine-tuned") == finetune("thin")
    head_first = finetune("FedAvg + public images, head first, then fine-tuned")
    assert head_first == {**finetune("thin"), "head_epochs": 3}


def test_the_recommended_rate_of_thin_gives_way_to_a_search(
    grid_of: Callable[..., Grid],
) -> None:
    one, *_ = our_studies("thin-ablation", MNIST)
    grid = grid_of(one, tuned={"mnist": {"thin": ["train.lr=0.03", "thin.cooling=0.9"]}})
    rates = {row.label: tuned(grid, one, row.label)[1].train.lr for row in one.blocks[0].rows}
    assert {*rates.values()} == {0.03}
    assert tuned(grid, one, "thin")[1].thin.cooling == 0.7  # what the row sets, and does not leave open
    assert tuned(grid_of(one), one, "thin")[1].train.lr == 0.1
    for spelt in ("train.lr=0.5", "train={lr=0.5}"):
        asked = tuned(grid_of(one, settings=(spelt,)), one, "thin")[1]
        assert (asked.train.lr, asked.thin.cooling) == (0.5, 0.7)


def test_rows_are_named_by_their_labels(tmp_path: Path) -> None:
    def request(*labels: str) -> Request:
        return Request("accuracy", "small", replace(ALL, labels=labels), VARIANTS, (), (0,), {}, tmp_path)

    chosen = {row.label for _, _, row in request("RefProtoFL", "LG-FedAvg").grids()["accuracy"].rows()}
    assert chosen == {"RefProtoFL", "LG-FedAvg"}  # without the control that trains on public images
    with pytest.raises(InputError, match="--row RefProto: allowed are the rows' names: FedAvg, "):
        request("RefProtoFL", "RefProto").grids()


def test_a_search_that_chose_more_than_training_is_refused(grid_of: Callable[..., Grid]) -> None:
    one = study("accuracy", MNIST)
    grid_of(one, tuned=TUNED).check()
    with pytest.raises(InputError, match="are not comparable: they differ in clients"):
        grid_of(one, tuned={"mnist": {"fedavg": ["clients=3"]}}).check()


def test_only_the_papers_preset_as_it_is_is_its_setting(grid_of: Callable[..., Grid]) -> None:
    assert grid_of(preset="paper").setting == "paper's"
    assert grid_of(preset="paper", settings=('device="cpu"',)).setting == "paper's"
    assert grid_of(preset="paper", settings=("evaluate.every=25",)).setting == "paper's"
    assert grid_of(preset="paper", settings=("rounds=2",)).setting == "changed"
    assert grid_of(preset="full").setting == "smaller"


def test_a_run_that_two_tables_need_is_one_cell_and_seeds_come_first(grid_of: Callable[..., Grid]) -> None:
    """RefProtoFL itself is in the first table, in the ablation of both variants, and in each sweep by its default."""
    scope = Scope(("fashion-mnist",), (0.5,), ("refprotofl",))
    found = [one for what in ("accuracy", "ablation", "sweeps") for one in studies_of(what, scope, 20)]
    cells = grid_of(*found, seeds=(0, 1)).cells()
    assert len({cell.experiment.hash for cell in cells}) == len(cells)
    assert [cell.experiment.seed for cell in cells] == sorted(cell.experiment.seed for cell in cells)
    # Four ablations with and without public images; of 16 swept values three are the default, and the size of the
    # public set has none until the data are known.
    assert len(cells) == 2 * (2 * 4 + 16 - 3)


@pytest.mark.parametrize(
    ("what", "protocols", "example"),
    [
        ("thin", ("global", "personal", "own"), "thin"),
        ("rivals", ("global", "personal", "own"), "thin"),
        ("headline", ("global", "personal", "own"), "thin"),
        ("thin-ablation", ("global", "personal", "own"), "thin"),
        ("plus", ("personal", "own"), "refprotofl-plus"),
    ],
)
def test_our_tables_have_the_examples_and_need_each_run_once(
    what: str, protocols: tuple[str, ...], example: str
) -> None:
    """Every row is another experiment, the example is among them, and all studies need the same runs."""
    studies = our_studies(what, Scope(("fashion-mnist", "cifar10"), (0.5, 100.0)))
    first, *others = studies
    assert tuple(study.protocol for study in studies) == protocols
    assert all(first.blocks == study.blocks for study in others)
    assert len(first.blocks) == 4
    grid = Grid(tuple(studies), "small", (), (0, 1), Path("out"))
    grid.check()
    rows = first.blocks[0].rows
    assert len(grid.cells()) == 4 * 2 * len(rows)
    path = Path(__file__).parents[3] / "examples" / f"{example}.toml"
    recommended = load_experiment(path, "small", ["dataset=fashion-mnist"])
    at = rows[-1] if what == "plus" else rows[0]
    assert grid.cell(first, first.blocks[0], at, 0).experiment.hash == recommended.hash


def test_by_another_accuracy_the_runs_are_the_same_and_the_paper_is_silent(grid_of: Callable[..., Grid]) -> None:
    """Its numbers, and its way of scoring, are about another one."""
    scope = Scope(("cifar10",), (0.5,))
    for what in ("accuracy", "ablation"):
        (own,) = scored_by("own", studies_of(what, scope, 20))
        usual = study(what, scope)
        assert (own.name, own.protocol) == (f"{what}-standard-own", "own")
        assert [cell.experiment.hash for cell in grid_of(own).cells()] == [
            cell.experiment.hash for cell in grid_of(usual).cells()
        ]
        assert any(row.paper for row in usual.blocks[0].rows)
        assert not any(row.paper for row in own.blocks[0].rows)
    assert [one.name for one in scored_by("own", our_studies("thin", scope))] == ["thin-own"]


def test_plus_adds_one_thing_after_another() -> None:
    rows = our_studies("plus", ALL)[0].blocks[0].rows
    assert [len(row.switched) for row in rows] == [0, 1, 2, 3, 4, 5, 6]
