"""The runs that studies need, each once, and in which setting."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from refprotofl.experiment.presets import load_experiment, set_keys
from refprotofl.grids.cells import Cell, cell_of
from refprotofl.grids.choices import key_of, read_switches
from refprotofl.grids.results import Result
from refprotofl.grids.running import Done
from refprotofl.report.comparable import check_settings
from refprotofl.reproduction.studies import Block, Row, Study
from refprotofl.reproduction.verdicts import PRESET, Setting

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

    @property
    def setting(self) -> Setting:
        """How it compares with the paper's."""
        if self.preset != PRESET:
            return "smaller"
        hashes = {load_experiment(None, self.preset, settings).hash for settings in ((), self.settings)}
        return "paper's" if len(hashes) == 1 else "changed"

    def cells(self) -> list[Cell]:
        """Seed by seed, so that an interrupted grid is complete for its first seeds."""
        found: dict[str, Cell] = {}
        for seed in self.seeds:
            for study, block, row in self.rows():
                cell = self.cell(study, block, row, seed)
                found.setdefault(cell.experiment.hash, replace(cell, name=f"{block.label}: {row.label}"))
        return list(found.values())

    def rows(self) -> Iterator[tuple[Study, Block, Row]]:
        for study in self.studies:
            for block in study.blocks:
                for row in block.rows:
                    yield study, block, row

    def cell(self, study: Study, block: Block, row: Row, seed: int) -> Cell:
        """Under the row's label."""
        own = [f"dataset={json.dumps(block.dataset)}", f"alpha={block.alpha:g}", *block.settings]
        tuned = self.tuned_of(study, block, row)
        said = set_keys(self.settings) & row.searched  # a rate that gives way to a search does to the user, too
        asked = row.without(said | {key_of(one) for one in tuned})
        settings = [*tuned, *self.settings, *own]
        return replace(cell_of(None, self.preset, settings, asked, seed, self.out / "runs"), name=row.label)

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

    def done(self, study: Study, block: Block, results: Results) -> Iterator[Done]:
        """The finished runs of a block, under their rows' labels."""
        for row in block.rows:
            for seed in self.seeds:
                cell = self.cell(study, block, row, seed)
                result = results.get(cell.experiment.hash)
                if result is not None:
                    yield cell, result
